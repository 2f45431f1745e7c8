// Uploads a model without its weights, and goes to the page that shows how far it is.
import { NotOnnx, strip } from "./strip.js";

const form = document.getElementById("ask");
const file = document.getElementById("file");
const drop = document.getElementById("drop");
const said = document.getElementById("said");
const button = form.querySelector("button");
const most = Number(form.dataset.most);

document.getElementById("upload").hidden = false;

const megabytes = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`;

function say(text, bad = false) {
  said.textContent = text;
  said.classList.toggle("bad", bad);
}

async function send(chosen) {
  button.disabled = true;
  try {
    say("Taking the weights out, here in this browser …");
    const model = await strip(chosen);
    if (model.size > most) {
      throw new NotOnnx(`without weights it still has ${megabytes(model.size)}, more than ${megabytes(most)}`);
    }
    say(`Sending ${megabytes(model.size)} of ${megabytes(chosen.size)} …`);
    const query = new URLSearchParams({ name: chosen.name.replace(/\.onnx$/i, "") });
    if (form.batch.value) query.set("batch", form.batch.value);
    const answer = await fetch(`/api/models?${query}`, {
      method: "POST", body: model, headers: { "content-type": "application/octet-stream" },
    });
    const told = await answer.json();
    if (!answer.ok) throw new Error(told.error);
    const threads = form.threads.value ? `?threads=${encodeURIComponent(form.threads.value)}` : "";
    location.assign(`/jobs/${encodeURIComponent(told.job)}${threads}`);
  } catch (error) {
    const why = error instanceof NotOnnx ? `${chosen.name} cannot be sent: ${error.message}.` : error.message;
    say(why || "The server cannot be reached.", true);
    button.disabled = false;
  }
}

form.addEventListener("submit", (event) => {
  if (file.files.length === 0) return;
  event.preventDefault();
  send(file.files[0]);
});
form.model.addEventListener("input", () => { file.value = ""; });
file.addEventListener("change", () => { if (file.files.length) form.model.value = ""; });
form.model.required = false;
form.addEventListener("submit", (event) => {
  if (file.files.length === 0 && !form.model.value) {
    event.preventDefault();
    say("Choose a file, or give the name of a model of the zoo.", true);
    form.model.focus();
  }
});
for (const name of ["dragover", "dragenter"]) {
  document.addEventListener(name, (event) => { event.preventDefault(); drop.classList.add("over"); });
}
document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) drop.classList.remove("over"); });
document.addEventListener("drop", (event) => {
  event.preventDefault();
  drop.classList.remove("over");
  if (event.dataTransfer.files.length) {
    file.files = event.dataTransfer.files;
    form.model.value = "";
    send(file.files[0]);
  }
});
