// What pages need beyond htmx. Pages work without it: times are then shown in UTC and copying is done by hand.
"use strict";

// <button data-copy="text"> copies the text; <button data-copy-from="id"> copies what the element shows.
// The listener sits on the document, so buttons that arrive with a swap work too.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy], [data-copy-from]");
  if (!button) return;
  const source = document.getElementById(button.dataset.copyFrom ?? "");
  const text = button.dataset.copy ?? source?.textContent;
  if (text === undefined) return;
  let result = "copied";
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // The clipboard is closed to pages that are served without TLS from another host.
    result = "failed";
  }
  button.dataset.copied = result;
  announce(result === "copied" ? "Copied" : "The browser did not allow copying");
  setTimeout(() => delete button.dataset.copied, 1500);
});

// announce speaks to screen readers through the one live region of the page.
function announce(text) {
  let region = document.getElementById("announcer");
  if (!region) {
    region = document.createElement("div");
    region.id = "announcer";
    region.className = "visually-hidden";
    region.setAttribute("role", "status");
    document.body.append(region);
  }
  region.textContent = text;
}

const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const hour = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });

// <time datetime="…Z"> comes as UTC and is shown in the zone of the reader: today without its date.
// A morph puts the UTC text back when it touches the element, hence the run after every swap.
function showLocalTimes() {
  const today = new Date().toDateString();
  for (const element of document.querySelectorAll("time[datetime]")) {
    const at = new Date(element.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    const text = (at.toDateString() === today ? hour : day).format(at);
    if (element.textContent !== text) element.textContent = text;
    if (element.title !== element.dateTime) element.title = element.dateTime;
  }
}

document.addEventListener("DOMContentLoaded", showLocalTimes);
document.addEventListener("htmx:after:swap", showLocalTimes);
