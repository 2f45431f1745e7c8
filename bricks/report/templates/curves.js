// Draws each picture of the page from the data that all of them share.
const datasets = JSON.parse(document.getElementById("data").textContent);
const specs = JSON.parse(document.getElementById("specs").textContent);
for (const element of document.querySelectorAll("[data-spec]")) {
  const spec = { ...specs[element.dataset.spec], datasets };
  window.vegaEmbed(element, spec, { actions: false, renderer: "svg" }).catch(
    (error) => { element.textContent = `This picture cannot be drawn: ${error.message}`; });
}
