// Furo has two complementary landmarks; readers of the page by ear need a name for each.
document.addEventListener("DOMContentLoaded", () => {
  document.querySelector("aside.sidebar-drawer")?.setAttribute("aria-label", "Pages of this site");
  document.querySelector("aside.toc-drawer")?.setAttribute("aria-label", "Contents of this page");
});
