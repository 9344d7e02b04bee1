package anthropic

import (
	"strconv"

	"forkyard/forkcore"
)

// tokenCount is the usage object of a stream. message_start has the first
// values; those of message_delta are totals of the whole message and replace
// them, member by member (never added: that would bill the input twice).
type tokenCount struct {
	input, read, created, created1h, created5m, output int64
	hasCreated                                         bool
	readsInInput                                       bool // input has what was read
}

// update takes a usage object. Members that are absent or null keep what was known.
func (t *tokenCount) update(usage []byte) {
	u := *t
	var prompt, cached, written int64
	var hasInput, hasPrompt, hasRead bool
	for key, value := range members(usage) {
		switch key {
		case "input_tokens":
			hasInput = setCount(&u.input, value)
		case "cache_read_input_tokens":
			hasRead = setCount(&u.read, value)
		case "cache_creation_input_tokens":
			u.hasCreated = setCount(&u.created, value) || u.hasCreated
		case "cache_creation":
			setCount(&u.created5m, member(value, "ephemeral_5m_input_tokens"))
			setCount(&u.created1h, member(value, "ephemeral_1h_input_tokens"))
		case "output_tokens", "completion_tokens":
			setCount(&u.output, value)
		case "prompt_tokens":
			hasPrompt = setCount(&prompt, value)
		case "prompt_tokens_details", "input_tokens_details":
			setCount(&cached, member(value, "cached_tokens"))
			setCount(&written, member(value, "cache_write_tokens"))
		}
	}
	// OpenAI's names, which bridges leave in: cached and written are a part of the prompt there, not classes beside it.
	// Source: https://platform.openai.com/docs/guides/prompt-caching
	if hasPrompt && !hasInput {
		u.input = prompt
	}
	if (hasPrompt && !hasInput || hasInput && !hasRead && !hasPrompt) && cached+written > 0 {
		u.read, u.created, u.hasCreated = cached, written, true
		u.input = max(u.input-cached-written, 0)
	}
	if !u.known() && t.known() {
		// Some gateways fill the input of message_delta with zeros.
		t.output = u.output
		return
	}
	*t = u
}

// maxCount is more tokens than any request has; a larger number is no count,
// and sums of such would overflow.
const maxCount = 1_000_000_000

func setCount(dst *int64, value []byte) bool {
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil || n < 0 || n > maxCount {
		return false
	}
	*dst = n
	return true
}

// known says that the endpoint counted the input: no request has none.
func (t tokenCount) known() bool { return t.usage().TotalInput() > 0 }

// usage gives the classes. The total of what was written is the provider's word;
// the share that it does not show as 1 h is 5 m, the default TTL.
func (t tokenCount) usage() forkcore.Usage {
	created := t.created
	if !t.hasCreated {
		created = t.created5m + t.created1h
	}
	hour := min(t.created1h, created)
	input := t.input
	if t.readsInInput && t.read <= input {
		input -= t.read
	}
	return forkcore.Usage{Input: input, CacheWrite5m: created - hour, CacheWrite1h: hour, CacheRead: t.read, Output: t.output}
}
