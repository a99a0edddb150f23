"use strict";
// The arrow keys follow the links to the page before and the page after.
addEventListener("keydown", (event) => {
  const way = { ArrowLeft: "prev", ArrowRight: "next" }[event.key];
  if (!way || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const link = document.querySelector(`a[rel="${way}"]`);
  if (link) link.click();
});
