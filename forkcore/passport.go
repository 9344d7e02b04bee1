package forkcore

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// PassportCheck compares one dimension of the cache key between a parent's
// request and a child's.
type PassportCheck struct {
	// Dimension is "tools", "system", "model", "thinking" (with effort and tool choice) or "messages", in the order of the provider's hash
	// but for model and thinking, which are no part of it and change the key all the same.
	Dimension string `json:"dimension"`
	// Parent and Child are the SHA-256 of the dimension's bytes in each; of messages, those that the parent sent.
	Parent Digest `json:"parent_sha256"`
	Child  Digest `json:"child_sha256"`
	Equal  bool   `json:"equal"`
}

// Passport shows that a child sends what its parent sent: five checks, all equal
// for a fork. A head that is no JSON is ErrNotCanonical.
func Passport(parent, child *Prefix) ([]PassportCheck, error) {
	p, err := headParts(parent.Head().Bytes())
	if err != nil {
		return nil, fmt.Errorf("parent: %w", err)
	}
	c, err := headParts(child.Head().Bytes())
	if err != nil {
		return nil, fmt.Errorf("child: %w", err)
	}
	// Through the parent's last block: behind it the child's bytes go on.
	end, _ := parent.Tail()
	p.messages = parent.Bytes()[parent.Head().Len():end]
	c.messages = child.Bytes()[child.Head().Len():]
	c.messages = c.messages[:min(len(p.messages), len(c.messages))]
	check := func(dimension string, a, b []byte) PassportCheck {
		return PassportCheck{Dimension: dimension, Parent: DigestOf(a), Child: DigestOf(b), Equal: bytes.Equal(a, b)}
	}
	return []PassportCheck{
		check("tools", p.tools, c.tools), check("system", p.system, c.system), check("model", p.model, c.model),
		check("thinking", p.thinking, c.thinking), check("messages", p.messages, c.messages),
	}, nil
}

type parts struct{ model, thinking, tools, system, messages []byte }

func headParts(head []byte) (parts, error) {
	var v struct {
		Model, Thinking, Tools, System json.RawMessage
		Effort                         json.RawMessage `json:"output_config"`
		ToolChoice                     json.RawMessage `json:"tool_choice"`
	}
	if err := json.Unmarshal(append(bytes.Clone(head), "]}"...), &v); err != nil {
		return parts{}, fmt.Errorf("%w: head: %w", ErrNotCanonical, err)
	}
	thinking := bytes.Join([][]byte{v.Thinking, v.Effort, v.ToolChoice}, comma)
	return parts{model: v.Model, thinking: thinking, tools: v.Tools, system: v.System}, nil
}
