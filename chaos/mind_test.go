package chaos_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"forkyard/modelsim"
)

// mind does what the last task says, in words of its own:
//
//	act:<name>   call Bash once, with an effect; a name that ends in -hold waits in the middle for world.release
//	read         call Glob once, without an effect
//	hold:<key>   the first answer does not begin before mind.let(key)
//	slow         the last answer streams for some seconds
//	limited      the first attempt is answered by a rate limit of 11 seconds
//	agent:<task> call Agent once with that task
type mind struct {
	mu   sync.Mutex
	held map[string]chan struct{}
	all  bool
	seen map[string]int
}

var words = regexp.MustCompile(`(act|hold|agent):([^\s"\\]+)|\b(read|slow|limited)\b`)

func (m *mind) gate(key string) chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held[key] == nil {
		m.held[key] = make(chan struct{})
		if m.all {
			close(m.held[key])
		}
	}
	return m.held[key]
}

// let lets the answers of a key begin.
func (m *mind) let(key string) {
	c := m.gate(key)
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-c:
	default:
		close(c)
	}
}

func (m *mind) letAllGo() {
	m.mu.Lock()
	m.all = true
	keys := m.held
	m.mu.Unlock()
	for k := range keys {
		m.let(k)
	}
}

// attempts counts the requests for a task.
func (m *mind) attempts(task string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen[task]
}

func (m *mind) Reply(ctx context.Context, r *modelsim.Request) (modelsim.Reply, error) {
	// The task is the last text that a person or a directive gave; what came after it are rounds.
	task, rounds := "", 0
	for _, msg := range r.Messages {
		if msg.Role == "assistant" {
			rounds++
			continue
		}
		for _, b := range msg.Blocks {
			if b.Type == "text" && strings.HasPrefix(b.Text, "do ") {
				task, rounds = b.Text, 0
			}
			if b.Type == "text" && strings.HasPrefix(b.Text, "<task-notification>") {
				task, rounds = "", 0
			}
		}
	}
	m.mu.Lock()
	if m.seen == nil {
		m.seen = map[string]int{}
	}
	m.seen[task]++
	first := m.seen[task] == 1
	m.mu.Unlock()
	var calls []modelsim.Block
	slow := false
	for _, w := range words.FindAllStringSubmatch(task, -1) {
		switch {
		case w[1] == "hold" && rounds == 0:
			select {
			case <-m.gate(w[2]):
			case <-ctx.Done():
				return modelsim.Reply{}, ctx.Err()
			}
		case w[3] == "limited" && first:
			return modelsim.Reply{Fault: &modelsim.Fault{Kind: modelsim.FaultStatus, Status: 429, RetryAfter: 11 * time.Second}}, nil
		case w[3] == "slow":
			slow = true
		case w[1] == "act" && rounds == 0:
			command := "echo " + w[2] + " >> acted"
			if strings.HasSuffix(w[2], "-hold") {
				command += "; while [ ! -e go-" + w[2] + " ]; do sleep 0.05; done"
			}
			calls = append(calls, modelsim.ToolUseBlock("", "Bash", fmt.Sprintf(`{"command":%q}`, command)))
		case w[3] == "read" && rounds == 0:
			calls = append(calls, modelsim.ToolUseBlock("", "Glob", `{"pattern":"*"}`))
		case w[1] == "agent" && rounds == 0:
			calls = append(calls, modelsim.ToolUseBlock("", "Agent", fmt.Sprintf(`{"description":"agent","prompt":"do %s"}`, strings.ReplaceAll(w[2], ",", " "))))
		}
	}
	if len(calls) > 0 {
		return modelsim.Reply{Blocks: calls}, nil
	}
	text := "Scope: task\nResult: done\nKey files: none\nFiles changed: none\nIssues: none"
	if slow {
		return modelsim.Reply{Blocks: []modelsim.Block{modelsim.TextBlock(text + strings.Repeat("\nand so on, line by line, for quite a while", 12))}, DeltaDelay: 60 * time.Millisecond}, nil
	}
	return modelsim.Reply{Blocks: []modelsim.Block{modelsim.TextBlock(text)}}, nil
}
