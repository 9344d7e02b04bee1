package web

import (
	"fmt"
	"strings"

	"forkyard/forkcore"
)

// The verdicts on what a request read from the provider's cache.
const (
	verdictHit     = "hit"     // all that was expected, or more
	verdictPartial = "partial" // less than expected, but something
	verdictMiss    = "miss"    // nothing of what was expected or could have been had
	verdictCold    = "cold"    // nothing was there to be read
	verdictUnknown = "unknown" // the provider has not told, or never will
)

// whyView says in plain words what a request read and why.
type whyView struct {
	Verdict  string
	Sentence string
	// Advice is what a person can do about it; empty when there is nothing to do.
	Advice string
}

// newWhy explains a row. Other runs are called by their ids.
func newWhy(row forkcore.RequestRow) whyView { return newNamedWhy(row, nil) }

// newNamedWhy explains a row and calls other runs by the names given, by id.
func newNamedWhy(row forkcore.RequestRow, names map[string]string) whyView {
	u := row.Usage
	if u == nil {
		return whyWithoutUsage(row)
	}
	var expected int64
	if row.ExpectedRead != nil {
		expected = *row.ExpectedRead
	}
	read := tokens(u.CacheRead)
	wanted := tokens(expected)
	if !row.ExpectedExact {
		wanted = "about " + wanted + " (estimated)"
	}
	source := writtenBy(row, names)
	var v whyView
	switch {
	case row.Miss != nil && u.CacheRead == 0:
		v = whyView{Verdict: verdictMiss, Sentence: "Read nothing from the cache"}
		if expected > 0 {
			v.Sentence += " although " + wanted + source + " were expected"
		}
	case row.Miss != nil:
		v = whyView{Verdict: verdictPartial, Sentence: "Read " + read}
		if expected > 0 && u.CacheRead < expected {
			v.Sentence += " of " + wanted + source
		}
	case u.CacheRead == 0 && expected > 0:
		v = whyView{Verdict: verdictMiss, Sentence: "Read nothing from the cache although " + wanted + source + " were expected"}
	case u.CacheRead > 0 && expected == 0:
		return whyView{Verdict: verdictHit, Sentence: "Read " + read + " that nobody here knew to be cached: an earlier conversation with the same beginning wrote them."}
	case u.CacheRead > 0 && u.CacheRead < expected && row.ExpectedExact:
		v = whyView{Verdict: verdictPartial, Sentence: "Read " + read + " of " + wanted + source}
	case u.CacheRead > expected && row.ExpectedExact:
		return whyView{Verdict: verdictHit, Sentence: fmt.Sprintf("Read %s, %s more than the %s%s.", read, tokens(u.CacheRead-expected), tokens(expected), source)}
	case u.CacheRead > 0 && row.ExpectedExact:
		return whyView{Verdict: verdictHit, Sentence: "Read all " + read + source + "."}
	case u.CacheRead > 0:
		return whyView{Verdict: verdictHit, Sentence: "Read " + read + source + ", all that was expected: " + wanted + "."}
	case u.Cached() > 0:
		return whyView{Verdict: verdictCold, Sentence: "Nothing was cached yet; this request wrote " + tokens(u.Cached()) + " for those that come after it."}
	default:
		return whyView{Verdict: verdictCold, Sentence: "Nothing was cached and nothing was written: " + tokens(u.TotalInput()) + " of input at the full price."}
	}
	if row.Miss == nil {
		v.Sentence += "."
		if row.Status == forkcore.RequestOpen {
			v.Sentence += " The reason is worked out when the answer is complete."
		}
		return v
	}
	m := *row.Miss
	// The sentence has said that already.
	m.Detail = strings.TrimPrefix(strings.TrimPrefix(m.Detail, fmt.Sprintf("expected %d tokens from the cache, read %d", expected, u.CacheRead)), "; ")
	cause, advice := missCause(m)
	v.Sentence, v.Advice = v.Sentence+": "+cause, advice
	return v
}

// whyWithoutUsage is about requests whose usage nobody has told: that is not zero.
func whyWithoutUsage(row forkcore.RequestRow) whyView {
	v := whyView{Verdict: verdictUnknown}
	switch row.Status {
	case forkcore.RequestOpen:
		v.Sentence = "In flight: the provider tells with its first event what it read."
		if row.ExpectedRead != nil && *row.ExpectedRead > 0 {
			v.Sentence += " Expected are " + tokens(*row.ExpectedRead) + "."
		}
	case forkcore.RequestAborted:
		v.Sentence = "Cut off before the provider said what it read, so that is unknown, not zero."
		v.Advice = "The provider's own bill has the figure, should there be one."
	case forkcore.RequestError:
		if row.KeyRefused {
			v.Sentence = "The provider refused the key: it read and wrote nothing, and bills nothing."
			v.Advice = "It goes on with a key that works, as a request of its own."
			break
		}
		v.Sentence = "Failed before the provider said what it read, so that is unknown. A refused request reads and writes nothing."
		v.Advice = "The error of the request says what went wrong; a retry is a request of its own."
	default:
		v.Sentence = "The provider answered without saying what it read, so that is unknown, not zero."
		v.Advice = "Endpoints that report no usage cannot be judged; the provider's own bill has the figures."
	}
	return v
}

// writtenBy names the request that left in the cache what was expected: it wrote it, or read the most of it and wrote the rest.
func writtenBy(row forkcore.RequestRow, names map[string]string) string {
	ref := row.ExpectedFrom
	if ref == nil {
		ref = row.ReadFrom
	}
	switch {
	case ref == nil:
		return ""
	case ref.RunID == row.RunID:
		return fmt.Sprintf(" that request %d of this run left in the cache", ref.N)
	case names[ref.RunID] != "":
		return fmt.Sprintf(" that request %d of “%s” left in the cache", ref.N, names[ref.RunID])
	}
	return fmt.Sprintf(" that request %d of %s left in the cache", ref.N, ref.RunID)
}

// missCause puts a code into words and says what to do about it.
// Source: Messages API, prompt caching: order tools, system, messages; look-back of 20 blocks; an entry can be read
// once the response that writes it begins; lifetime counts from the start of the last use.
func missCause(m forkcore.MissReason) (cause, advice string) {
	where := ""
	if m.Path != "" {
		where = " at " + m.Path
	}
	switch m.Code {
	case "model":
		cause, advice = "the model or its speed is another one, and a cache serves one model alone", "Keep the model of the session: a fork takes it from its snapshot."
	case "tools":
		cause, advice = "the tools differ"+where+", and everything after them with them", "Compare with the request that wrote the entry; tools are fixed from a session's first request on."
	case "system":
		cause, advice = "the system prompt differs"+where, "Compare with the request that wrote the entry, and keep whatever changes (dates, paths, status) out of the system prompt."
	case "messages":
		cause, advice = "the messages differ"+where, "Compare with the request that wrote the entry: the first byte that differs is shown."
	case "thinking":
		cause, advice = "the thinking or effort setting differs"+where+", and that is a part of the key", "Keep thinking and effort as the session started with them."
	case "expired":
		cause, advice = "what was cached had run out", "Dispatch sooner after the last turn: an entry lives five minutes (or an hour, by its mark) from the start of its last use, and each use renews it."
	case "too_short":
		cause, advice = "the prefix is shorter than what this model caches", "Nothing to repair: so short a prefix costs little. It is cached once the conversation is longer."
	case "look_back":
		cause, advice = "the entry lies 20 blocks or more before the nearest mark"+where+", where the provider does not look", "Nothing to do by hand: the next request of this run marks its own end anew."
	case "race":
		cause, advice = "it was sent before the response that writes the prefix had begun", "Leave the gate on “automatic” or “always”: siblings then wait until the first response begins."
	case "other_key":
		cause, advice = "the entry belongs to another API key, workspace, endpoint or beta set of the provider", "Send all requests of a session to one endpoint, with keys of one provider workspace."
	case "provider":
		cause, advice = "the provider compared it with the request that wrote the entry and found a difference that the bytes do not show", "Compare with the request that wrote the entry; if the bytes agree, report the provider's verdict to it."
	case "unknown":
		cause, advice = "the cause cannot be told from here", "Compare with the request that wrote the entry: when all bytes agree, the provider did not keep it."
	default:
		cause, advice = "reason “"+m.Code+"”"+where, ""
	}
	if m.Detail != "" {
		cause += " (" + strings.TrimRight(m.Detail, ". ") + ")"
	}
	return cause + ".", advice
}

// tokens is a count with its unit.
func tokens(n int64) string {
	if n == 1 {
		return "1 token"
	}
	return grouped(n) + " tokens"
}
