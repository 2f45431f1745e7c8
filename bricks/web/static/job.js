// Asks how far a model is, until its answers are there.
const state = document.getElementById("state");
const WORDS = {
  queued: (job) => (job.ahead ? `Waiting: ${job.ahead} before it.` : "Waiting for its turn."),
  reading: () => "Reading the graph.",
  decomposing: () => "Decomposing it into bricks.",
  predicting: () => "Adding up latencies.",
  failed: (job) => job.error,
};

async function ask() {
  try {
    const answer = await fetch(`/api/jobs/${encodeURIComponent(state.dataset.job)}`);
    const job = await answer.json();
    if (!answer.ok) throw new Error(job.error);
    if (job.state === "done") {
      location.replace(`${job.address}${location.search}`);
      return;
    }
    if (job.open_axes.length) {  // the page asks for sizes now
      location.reload();
      return;
    }
    const words = WORDS[job.state](job);
    if (state.textContent !== words) state.textContent = words;
    if (job.state === "failed") {
      state.classList.add("bad");
      document.getElementById("bar").remove();
      return;
    }
  } catch (error) {
    state.textContent = error.message || "The server cannot be reached.";
  }
  setTimeout(ask, 400);
}
ask();
