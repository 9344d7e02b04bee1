package modelsim

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"hash"
	"slices"
	"strings"
)

// A thinking block carries the seal under which it was given as its signature. From version 5.1 on the provider binds such
// blocks to the model and to the conversation before them: an older model drops what a newer one thought, and a changed
// system prompt, tool or earlier message is refused. Marks, effort and the thinking configuration are no part of the
// conversation, and a leading run of thinking blocks may be taken out of it.
//
// Chosen where the documentation is silent: "older" goes by version number across the lines; a block of a model that does
// not bind is read by all; all keys are of one organization, so no block is refused for its origin; a signature that is not
// the simulator's is taken as it is.

// betaBinding lets a client choose what happens to a block that fails and tells it what was dropped.
const betaBinding = "thinking-binding-controls-2026-08-01"

// seal is what a signature holds.
type seal struct {
	model   string   // that thought
	ordinal byte     // among the thinking blocks of its answer
	before  [8]byte  // the thinking block before it in the conversation; zero for none
	text    [16]byte // of the thinking
	said    [16]byte // the conversation before it, thinking left out; zero when the model does not bind
}

// sealPrefix begins the decoded signatures that the simulator gives.
const sealPrefix = "modelsim2:"

func (s seal) signature() string {
	var b bytes.Buffer
	b.WriteString(sealPrefix)
	b.WriteByte(s.ordinal)
	b.Write(s.before[:])
	b.Write(s.text[:])
	b.Write(s.said[:])
	b.WriteString(s.model)
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

// parseSeal reads a signature; ok is false for one that the simulator did not give.
func parseSeal(signature string) (s seal, ok bool) {
	raw, err := base64.StdEncoding.DecodeString(signature)
	if err != nil {
		return seal{}, false
	}
	raw, ok = bytes.CutPrefix(raw, []byte(sealPrefix))
	if !ok || len(raw) < 1+8+16+16 {
		return seal{}, false
	}
	s.ordinal, raw = raw[0], raw[1:]
	raw = raw[copy(s.before[:], raw):]
	raw = raw[copy(s.text[:], raw):]
	raw = raw[copy(s.said[:], raw):]
	s.model = string(raw)
	return s, true
}

func thinkingText(s string) (out [16]byte) {
	sum := sha256.Sum256([]byte(s))
	copy(out[:], sum[:])
	return out
}

// thoughtID names a thinking block by its signature, or by the data of a redacted one.
func thoughtID(signature string) (out [8]byte) {
	sum := sha256.Sum256([]byte(signature))
	copy(out[:], sum[:])
	return out
}

// talk is a running digest of a conversation without its thinking. It is of what is said, not of bytes: a client may
// write the same blocks with other white space, escapes and order of fields.
type talk struct {
	h     hash.Hash
	state digest
}

func (t *talk) add(tier int, role string, b Block, clean []byte) {
	t.h.Reset()
	t.h.Write(t.state[:])
	t.h.Write([]byte{byte(tier)})
	writeFramed(t.h, []byte(role))
	switch {
	case tier == tierTools:
		writeCanonical(t.h, clean)
	case b.Type == "text":
		writeFramed(t.h, []byte(b.Text))
	case b.Type == "tool_use":
		writeFramed(t.h, []byte(b.ID))
		writeFramed(t.h, []byte(b.Name))
		writeCanonical(t.h, b.Input)
	default:
		writeCanonical(t.h, clean)
	}
	t.h.Sum(t.state[:0])
}

func (t *talk) sum() (out [16]byte) { copy(out[:], t.state[:]); return out }

// said returns the conversation's digest before each position, and after the last.
func (p *prompt) said() ([][16]byte, *talk) {
	t := &talk{h: sha256.New()}
	out := make([][16]byte, len(p.positions))
	for i := range p.positions {
		out[i] = t.sum()
		if pos := &p.positions[i]; !pos.thinks() {
			t.add(pos.tier, pos.role, pos.block(), pos.clean)
		}
	}
	return out, t
}

// writeCanonical writes JSON without white space and with its strings decoded; the order of members stays.
func writeCanonical(h hash.Hash, raw []byte) {
	for i := 0; i < len(raw); {
		switch raw[i] {
		case ' ', '\n', '\t', '\r':
			i++
		case '"':
			end := min(skipString(raw, i), len(raw))
			if s := raw[i:end]; bytes.IndexByte(s, '\\') < 0 {
				h.Write(s)
			} else {
				fmt.Fprintf(h, `"%s"`, text(s))
			}
			i = end
		default:
			end := i + 1
			for end < len(raw) && raw[end] != '"' && skipSpace(raw, end) == end {
				end++
			}
			h.Write(raw[i:end])
			i = end
		}
	}
}

func (p *position) thinks() bool { return p.kind == "thinking" || p.kind == "redacted_thinking" }

// transformation is one element of input_transformations.
type transformation struct {
	Type   string `json:"type"`
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// checkThoughts checks the thinking blocks of the history and takes those out of the prompt that the model does not get to
// see. It comes after the checks that need all positions.
func (p *prompt) checkThoughts() *apiError {
	latest, lastUser := -1, -1
	for i, t := range p.turns {
		switch {
		case t.role == "assistant":
			latest = i
		case t.role == "user" && slices.ContainsFunc(p.Messages[i].Blocks, func(b Block) bool { return b.Type != "tool_result" }):
			lastUser = i
		}
	}
	var said [][16]byte // only when needed
	dropped := map[string]bool{}
	report := func(kind string, pos *position, reason string) {
		p.transformations = append(p.transformations, transformation{kind, pos.path, reason})
		if kind == "thinking_dropped" {
			dropped[pos.path] = true
		}
	}
	for i, t := range p.turns {
		ordinal, failed := 0, false // failed: the thinking right before failed the check of the conversation
		for k := t.start; k < t.end; k++ {
			pos := &p.positions[k]
			if !pos.thinks() {
				failed = false
				continue
			}
			signature := text(lookup(pos.ms, "signature"))
			before := p.thought
			p.thought = thoughtID(signature + text(lookup(pos.ms, "data")))
			n := ordinal
			ordinal++
			s, ours := parseSeal(signature)
			if ours {
				changed := s.text != thinkingText(text(lookup(pos.ms, "thinking")))
				if i == latest && !p.model.binds && (changed || int(s.ordinal) != n) {
					return invalid("%s: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. "+
						"These blocks must remain as they were in the original response.", pos.path)
				}
				if changed {
					return invalid("%s: Invalid `signature` in `thinking` block", pos.path)
				}
			}
			switch {
			case p.model.lastTurnOnly && i < lastUser:
				dropped[pos.path] = true // not a failed check: nothing to report
				continue
			case ours && generation(s.model) > p.model.generation && bindsThinking(s.model):
				report("thinking_dropped", pos, "model_binding_mismatch")
				continue
			case failed:
				report("thinking_dropped", pos, "prefix_binding_mismatch")
				continue
			case !ours || !p.model.binds || !bindsThinking(s.model):
				continue
			}
			if said == nil {
				said, _ = p.said()
			}
			if s.said == said[k] && (before == [8]byte{} || before == s.before) {
				continue
			}
			switch {
			case !p.model.bindsPrefix:
				report("thinking_mismatch_allowed", pos, "prefix_binding_mismatch")
			case p.dropMismatch:
				failed = true
				report("thinking_dropped", pos, "prefix_binding_mismatch")
			default:
				return invalid("%s: Invalid `signature` in `thinking` block. The block is bound to a different conversation. "+
					"Send the messages before it as they were, or set `thinking.block_binding.prefix_mismatch_behavior` to \"drop_block\" with the beta header `%s`.", pos.path, betaBinding)
			}
		}
	}
	if len(dropped) > 0 {
		p.positions = slices.DeleteFunc(p.positions, func(pos position) bool { return dropped[pos.path] })
	}
	return nil
}

// signer signs the thinking of one answer.
type signer struct {
	p       *prompt
	talk    *talk
	ordinal byte
	before  [8]byte
}

// sign gives b a signature if it is thinking without one, and takes note of b for those that follow.
func (s *signer) sign(b *Block) {
	if b.Type == "redacted_thinking" {
		s.before = thoughtID(text(lookup(members(b.Raw), "data")))
		return
	}
	if b.Type != "thinking" {
		if s.talk != nil {
			s.talk.add(tierMessages, "assistant", *b, b.Raw)
		}
		return
	}
	if b.Signature == "" {
		seal := seal{model: s.p.model.id, ordinal: s.ordinal, before: s.before, text: thinkingText(b.Text)}
		if s.talk != nil {
			seal.said = s.talk.sum()
		}
		b.Signature = seal.signature()
	}
	s.ordinal++
	s.before = thoughtID(b.Signature)
}

// newSigner returns a signer for an answer to p with those blocks.
func newSigner(p *prompt, blocks []Block) *signer {
	s := &signer{p: p, before: p.thought}
	if p.model.binds && slices.ContainsFunc(blocks, func(b Block) bool { return b.Type == "thinking" && b.Signature == "" }) {
		_, s.talk = p.said()
	}
	return s
}

// generation is the version in a model id as one number: 51 for claude-fable-5-1, 50 for claude-opus-5, 0 without one.
func generation(id string) int {
	parts := strings.Split(id, "-")
	major, minor := 0, 0
	if n := len(parts); n >= 2 {
		if _, err := fmt.Sscanf(parts[n-1], "%d", &minor); err != nil {
			return 0
		}
		if _, err := fmt.Sscanf(parts[n-2], "%d", &major); err != nil {
			major, minor = minor, 0
		}
	}
	return 10*major + minor
}

// bindsThinking reports whether a model signs its thinking for itself and the conversation.
func bindsThinking(id string) bool { return generation(id) >= 51 }
