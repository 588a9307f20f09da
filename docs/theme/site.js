// Names and keyboard access that the theme leaves out: its search dialog has no name, the buttons
// of all code blocks are one landmark many times, and code that scrolls cannot be reached by keys.

function name_landmarks() {
  document.querySelectorAll("[role=dialog]:not([aria-label])").forEach((dialog) => {
    dialog.setAttribute("aria-label", "Search");
  });
  document.querySelectorAll(".md-code__nav").forEach((buttons, number) => {
    buttons.setAttribute("aria-label", `Code block ${number + 1}`);
  });
  document.querySelectorAll("pre > code, .md-typeset__scrollwrap").forEach((block) => {
    block.setAttribute("tabindex", "0");
  });
}

name_landmarks();
new MutationObserver(name_landmarks).observe(document.body, { childList: true, subtree: true });
