// Package sse serves the events of sessions as Server-Sent Events.
//
// What a client may rely on:
//
//   - Durable events of a session come in order, each once, none missing, also across a break: the client names the
//     last id it got (Last-Event-ID or ?after=) and the stream goes on behind it.
//   - Deltas carry no id, are not replayed, and may be dropped when a client lags.
//   - A client that lags too far is cut rather than waited for. It resumes from the store; no client holds up another.
//   - Something comes at least every 15 seconds.
//
// How: one Hub reads one live feed and gives it to all. A stream reads the stored events behind its cursor,
// subscribes, reads what was stored meanwhile, and then drops from the live events those that it has sent already.
package sse
