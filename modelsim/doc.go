// Package modelsim is a stand-in for the Messages API with an honest prompt cache. It needs no key, keeps everything in
// memory and says what it received, byte for byte.
//
// Words: a position is one tool, one system block or one message block, in the order in which the provider renders them
// (tools, system, messages). A mark is a cache_control member; it belongs to a position and is not part of the bytes that
// are hashed. An entry is what a response leaves at a mark: it becomes readable when that response begins, lives 5 minutes
// or 1 hour from the start of the request that wrote or last read it, and is visible to the same key and workspace only.
// Tokens are counted as bytes/4, rounded up, for each position.
//
// What the model says comes from a [Mind]. The built-in one, [Player], uses the tools that a request offers, on the
// files those tools can see, and reports what it found there. It reads and never writes.
//
// The wire side goes wrong on demand: [Reply.Fault] acts out HTTP errors, error events, cut and reset streams (also inside
// an event or a rune), silence, pings only and a slow answer; [Options] has rate limits with their headers, credit, valid
// keys, a visibility lag and random misses, all off by default. Thinking blocks are bound to model and conversation as the
// models do it.
//
// Beside the API there are pages of the simulator's own, which need no key:
//
//   - GET /_sim/requests: what the messages endpoint received, byte for byte, and what became of it; ?after=n leaves out
//     the first n.
//
//   - GET /_sim/cache: the living entries.
//
//   - POST /_sim/keys with {"key": "…", "allowed": false}: refuse a key, or take it (again) with its whole credit.
//
//   - DELETE /_sim: forget entries, requests and what keys have used up.
//
//     srv := httptest.NewServer(modelsim.New(modelsim.Options{}))
//     // point a client at srv.URL with any non-empty key
//
// The rules follow the public Messages API and prompt caching documentation as of November 2026. Where that is silent,
// the comment at the rule says what was chosen.
package modelsim
