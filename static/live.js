// The live stream of a page: <div id="live" hx-sse:connect="…" hx-trigger="none" hx-sync="drop">. htmx reads the stream and
// resumes it by Last-Event-ID; here is what it leaves out. It is not asked to connect by itself: it looks at the page once,
// before its extension is there when that is slow to load. And without hx-sync it would keep a request that is made while
// an answer is awaited and open a second stream afterwards.
"use strict";

{
  // Sent by the server every 10 seconds when nothing else is.
  const SILENCE = 25_000;
  const RETRY_FIRST = 500;
  const RETRY_LAST = 5_000;

  const live = () => document.getElementById("live");
  let connection; // of htmx, while there is one
  let heard = Date.now();
  let retry = RETRY_FIRST;
  let timer;

  // merge: each child of a piece replaces the element with its id, or is appended to the target when there is none.
  // A piece that comes twice therefore changes nothing.
  let internal;
  htmx.registerExtension("forkyard-merge", {
    init: (api) => { internal = api; },
    handle_swap: (style, target, fragment) => {
      if (style !== "merge") return false;
      const drawn = [];
      for (const child of Array.from(fragment.children)) {
        const present = child.id ? document.getElementById(child.id) : null;
        if (present) {
          const piece = new DocumentFragment();
          piece.append(child);
          internal.morph(present, piece, false);
          drawn.push(present);
        } else {
          target.append(child);
          drawn.push(child);
        }
      }
      return drawn;
    },
    // What a reader opened stays open, and what they typed or chose stays as it is.
    htmx_before_morph_attr: (element, detail) => !(detail.attrName === "open" && element.localName === "details"),
  });

  function connect() {
    clearTimeout(timer);
    const element = live();
    if (!element || document.hidden || element._htmx?.sse) return;
    htmx.ajax("GET", element.getAttribute("hx-sse:connect"), { source: element, timeout: htmx.config.sse.connectTimeout });
  }

  // later connects again after a failed first attempt: htmx only resumes what was open once.
  function later() {
    clearTimeout(timer);
    timer = setTimeout(connect, retry);
    retry = Math.min(2 * retry, RETRY_LAST);
  }

  function fresh() {
    heard = Date.now();
    retry = RETRY_FIRST;
    document.getElementById("stale")?.setAttribute("hidden", "");
  }

  function stale(since) {
    const notice = document.getElementById("stale");
    if (!notice || !notice.hidden) return;
    const time = notice.querySelector("time");
    if (time) time.dateTime = new Date(since).toISOString();
    notice.hidden = false;
    document.dispatchEvent(new CustomEvent("times"));
  }

  // <div data-follow> with #log-end as its last child stays at its end while new entries arrive, if it was there.
  let following = false;
  const end = () => document.getElementById("log-end");
  const atEnd = () => {
    const scroller = end()?.closest("[data-follow]");
    if (!scroller) return false;
    if (scroller.scrollHeight > scroller.clientHeight + 1) return scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 80;
    const box = end().getBoundingClientRect();
    return box.top < innerHeight && box.bottom > 0;
  };
  document.addEventListener("htmx:after:swap", (event) => {
    if (ours(event) && following) end().scrollIntoView({ block: "nearest" });
  });
  document.addEventListener("DOMContentLoaded", () => {
    const scroller = end()?.closest("[data-follow]");
    if (scroller) scroller.scrollTop = scroller.scrollHeight;
  });

  const ours = (event) => event.target === live();

  document.addEventListener("htmx:config:request", (event) => {
    // Chromium lets a request wait, 20 seconds at most, while another window reads the answer to the same one: it might be
    // kept. Source: its net/http/http_cache.cc.
    if (ours(event)) event.detail.ctx.request.cache = "no-store";
  });
  document.addEventListener("htmx:sse:after:connection", (event) => {
    if (!ours(event)) return;
    connection = event.detail.connection;
    fresh();
    // Hidden during the pause before the attempt: htmx gives up streams when it hears of that, not those it opens later.
    queueMicrotask(() => {
      if (document.hidden) document.dispatchEvent(new Event("visibilitychange"));
    });
  });
  document.addEventListener("htmx:sse:before:message", (event) => {
    if (!ours(event)) return;
    fresh();
    following = atEnd();
  });
  document.addEventListener("htmx:sse:error", (event) => {
    if (!ours(event)) return;
    // Signed out, or the session is gone: the whole page says what happened.
    if ([401, 403, 404].includes(event.detail.status)) location.reload();
    stale(heard);
  });
  document.addEventListener("htmx:sse:close", (event) => {
    if (!ours(event)) return;
    connection = undefined;
    if (event.detail.reason === "ended") later();
  });
  // htmx would draw an error page into the element.
  document.addEventListener("htmx:before:swap", (event) => {
    if (ours(event) && !live()._htmx?.sse) event.preventDefault();
  });
  document.addEventListener("htmx:finally:request", (event) => {
    if (!ours(event) || live()._htmx?.sse || document.hidden) return;
    stale(heard);
    later();
  });

  // A connection can die without a word: a laptop that slept, a proxy that forgot. The stream is never silent for long.
  setInterval(() => {
    if (document.hidden || !live() || Date.now() - heard < SILENCE) return;
    stale(heard);
    if (connection?.reader) connection.reader.cancel();
    else connect();
  }, 1_000);

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      // htmx gives a stream up, but not the wait for one. A page that the browser keeps for "back" would go on waiting,
      // and so hold one of the few connections to a host.
      if (!connection) htmx.trigger(live(), "htmx:abort");
      else if (!connection.reader) connection.abortController.abort();
      return;
    }
    // While hidden no stream was held, so silence says nothing yet.
    heard = Date.now();
    connect();
  });
  addEventListener("offline", () => stale(heard));
  addEventListener("online", connect);
  addEventListener("pageshow", (event) => { if (event.persisted) connect(); });
  connect();
}
