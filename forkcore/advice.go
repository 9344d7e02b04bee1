package forkcore

import (
	"fmt"
	"sort"
)

// Jobs is what a caller expects of the work that directives ask for. The zero
// value knows nothing.
type Jobs struct {
	// Turns is how many requests one job takes; 0 = not known, AssumedTurns then.
	Turns int64 `json:"turns,omitempty"`
	// NeededTokens is how much of the conversation one job needs: what a fresh
	// agent would have to gather anew. What the conversation has beyond it is
	// carried for nothing. nil = not known.
	NeededTokens *int64 `json:"needed_tokens,omitempty"`
}

// Invalid says what is wrong with the numbers; nil when nothing is.
func (j Jobs) Invalid() []FieldError {
	var bad InvalidError
	if j.Turns < 0 || j.Turns > MaxTurns {
		bad.Add("jobs.turns", "is %d; give 1 to %d requests, or leave it out", j.Turns, MaxTurns)
	}
	if n := j.NeededTokens; n != nil && (*n < 0 || *n > MaxNeededTokens) {
		bad.Add("jobs.needed_tokens", "is %d; give 0 to %d tokens, or leave it out", *n, MaxNeededTokens)
	}
	return bad.Fields
}

const (
	// AssumedTurns is how many requests a job is taken to need while nobody says.
	AssumedTurns = 5
	// MaxTurns and MaxNeededTokens bound what a caller may expect.
	MaxTurns        = 1000
	MaxNeededTokens = 100_000_000
	// smallTurns is the most requests of a job that counts as small.
	smallTurns = 2
	// adviceMargin is the part of a price, one in so many, by which forks must be
	// cheaper than named agents. It stands for what no token count shows: guards
	// at run time, and a prefix that everybody has to keep intact.
	adviceMargin = 50
)

// Choice is a way to get work done.
type Choice string

// The choices: forks, agents with a context of their own, or the conversation itself.
const (
	ChooseFork       Choice = "fork"
	ChooseNamedAgent Choice = "named_agent"
	ChooseNoFork     Choice = "no_fork"
)

// Advice is a choice with its reason in one or two sentences.
type Advice struct {
	Choice Choice `json:"choice"`
	Reason string `json:"reason"`
}

// Comparison holds what the three ways to do the work of a fan-out differ in,
// in tokens. Output, and what a job itself writes and reads again, are the same
// in all three and left out.
type Comparison struct {
	Info   ModelInfo
	Priced bool
	// FanOut is that of the forks. Without a price its rates are not used.
	FanOut FanOut
	Gate   bool
	// Longest is the longest of the children's own blocks.
	Longest int64
	// Head is the tools and the system prompt, which a fresh agent has as well.
	Head int64
	// Guards is what only forks carry: placeholders and rules.
	Guards int64
	Jobs   Jobs
}

func (c Comparison) shared() int64 { return c.FanOut.Held + c.FanOut.Delta }

// carried is what a fork sends at every request and a fresh agent does not: history,
// the dispatching message, placeholders and rules.
func (c Comparison) carried() int64 { return max(c.shared()-c.Head, 0) }

// history is the part of it that somebody may need.
func (c Comparison) history() int64 { return max(c.carried()-c.Guards, 0) }

func (c Comparison) turns() int64 {
	if c.Jobs.Turns > 0 {
		return c.Jobs.Turns
	}
	return AssumedTurns
}

func (c Comparison) rates(prefix, total int64) Rates {
	if c.Priced {
		return cacheRates(c.Info, prefix, total)
	}
	if prefix < c.Info.MinCacheable {
		return TokenRates.Uncached()
	}
	return TokenRates
}

func (c Comparison) forkRates() Rates { return c.rates(c.shared(), c.shared()+c.Longest) }

// Fork is the input of forks that need so many requests each: the fan-out, then
// the whole prefix read again at every request.
func (c Comparison) Fork(turns int64) int64 {
	f := c.FanOut
	f.Rates = c.forkRates()
	first := f.Ungated()
	if c.Gate {
		first = f.Gated()
	}
	return first + f.Children*(turns-1)*f.Rates.Read*c.shared()
}

// Fresh is the input of as many fresh agents of one type that share their own
// prefix and gather what they need: they write it once each, and carry nothing else.
func (c Comparison) Fresh(turns, needed int64) int64 {
	n := c.FanOut.Children
	head := FanOut{Children: n, Delta: c.Head, Own: c.FanOut.Own, Rates: c.rates(c.Head, c.Head+c.Longest+needed)}
	// What is gathered comes on top, so the minimum is of no account there.
	r := c.rates(c.Info.MinCacheable, c.Head+c.Longest+needed)
	return head.Gated() + n*(r.Write5m*needed+(turns-1)*(head.Rates.Read*c.Head+r.Read*needed))
}

// Here is the input of the conversation that does the directives itself, one after
// another: no rules, no placeholders, and all of its history at every request.
func (c Comparison) Here(turns int64) int64 {
	prefix := max(c.shared()-c.Guards, 0) // what is counted may be less than what is estimated
	f := FanOut{Children: 1, Held: min(c.FanOut.Held, prefix), Own: c.FanOut.Own, Rates: c.rates(prefix, prefix+c.FanOut.Own)}
	f.Delta = prefix - f.Held
	return f.Gated() + (c.FanOut.Children*turns-1)*f.Rates.Read*prefix
}

// forkWins reports whether forks are cheaper than fresh agents, by more than the margin.
func (c Comparison) forkWins(needed int64) bool {
	fork := c.Fork(c.turns())
	return fork+fork/adviceMargin <= c.Fresh(c.turns(), needed)
}

// BreakEven says from where on forks are cheaper than fresh agents.
type BreakEven struct {
	// Turns is the number of requests of one job that it is for; Assumed when nobody said it.
	Turns   int64 `json:"turns"`
	Assumed bool  `json:"assumed"`
	// CarriedTokens is what each fork carries and a fresh agent does not,
	// CarriedNanoUSD what reading it costs at every further request.
	CarriedTokens  int64  `json:"carried_tokens"`
	CarriedNanoUSD *int64 `json:"carried_nanousd"`
	// NeededTokens is how much of the conversation a job must need for forks to be
	// cheaper; nil when they are dearer even if it needs all.
	NeededTokens *int64 `json:"needed_tokens"`
	// RegatherNanoUSD is what gathering it anew may cost one fresh agent before a fork is cheaper; 0 = a fork always is.
	RegatherNanoUSD *int64 `json:"regather_nanousd"`
	// WriteUses5m and WriteUses1h are how often a prefix is used until its write pays; 0 = never.
	WriteUses5m int64 `json:"write_uses_5m"`
	WriteUses1h int64 `json:"write_uses_1h"`
}

// BreakEven computes it for the expected number of requests.
func (c Comparison) BreakEven() BreakEven {
	b := BreakEven{Turns: c.turns(), Assumed: c.Jobs.Turns == 0, CarriedTokens: c.carried()}
	r := c.forkRates()
	b.WriteUses5m, _ = r.WriteBreakEven("5m")
	b.WriteUses1h, _ = r.WriteBreakEven("1h")
	all := c.history()
	if n := int64(sort.Search(int(all)+1, func(n int) bool { return c.forkWins(int64(n)) })); n <= all {
		b.NeededTokens = &n
	}
	if c.Priced {
		carried := r.Read * c.carried()
		regather := max((c.Fork(b.Turns)-c.Fresh(b.Turns, 0))/max(c.FanOut.Children, 1), 0)
		b.CarriedNanoUSD, b.RegatherNanoUSD = &carried, &regather
	}
	return b
}

// TurnCost is the input of the whole work after so many requests of each job,
// from the first on, in nano-dollars; nil = no price.
type TurnCost struct {
	Turn        int64  `json:"turn"`
	ForkNanoUSD *int64 `json:"fork_nanousd"`
	// FreshMinNanoUSD and FreshMaxNanoUSD are equal when it is known what a job
	// needs; else they are for nothing and for all of the conversation.
	FreshMinNanoUSD *int64 `json:"fresh_min_nanousd"`
	FreshMaxNanoUSD *int64 `json:"fresh_max_nanousd"`
	HereNanoUSD     *int64 `json:"here_nanousd"`
}

// tableTurns is the most lines of a calculation.
const tableTurns = 10

// PerTurn is the calculator: fork, fresh agents and no fork, for one request of each job,
// two, and so on; at most ten lines.
func (c Comparison) PerTurn() []TurnCost {
	if !c.Priced {
		return nil
	}
	least, most := int64(0), c.history()
	if n := c.Jobs.NeededTokens; n != nil {
		least, most = *n, *n
	}
	var out []TurnCost
	for turn := int64(1); turn <= min(c.turns(), tableTurns); turn++ {
		fork, low, high, here := c.Fork(turn), c.Fresh(turn, least), c.Fresh(turn, most), c.Here(turn)
		out = append(out, TurnCost{Turn: turn, ForkNanoUSD: &fork, FreshMinNanoUSD: &low, FreshMaxNanoUSD: &high, HereNanoUSD: &here})
	}
	return out
}

// Advise chooses between forks, named agents and the conversation itself. One
// small directive is done here. Forks are for work that needs the conversation:
// what they carry is read at every further request, whether it matters or not.
// While nobody knows how much of it a job needs, the reason says from how much on
// forks pay.
func Advise(c Comparison) Advice {
	turns, all := c.turns(), c.history()
	money := c.money
	each := fmt.Sprintf("over %s each", requestsText(turns))
	if c.Jobs.Turns == 0 {
		each = fmt.Sprintf("assuming %s each", requestsText(turns))
	}
	carries := fmt.Sprintf("a fork carries %s that a named agent does not, for %s at every further request", tokensText(c.carried()), money(c.forkRates().Read*c.carried()))
	switch {
	case c.FanOut.Children == 1 && c.FanOut.Own <= c.Guards && c.Jobs.Turns <= smallTurns:
		return Advice{ChooseNoFork, fmt.Sprintf("One directive of %s is shorter than the %s of rules that a fork adds (%s): send it as a message, unless its work should stay out of the conversation.",
			tokensText(c.FanOut.Own), Grouped(c.Guards), money(c.forkRates().Write5m*c.Guards))}
	case all == 0 && !c.forkWins(0):
		return Advice{ChooseNamedAgent, fmt.Sprintf("There is no conversation to inherit: a fork is a fresh agent that also carries %s of rules, for %s at every further request.",
			tokensText(c.Guards), money(c.forkRates().Read*c.Guards))}
	case c.Jobs.NeededTokens != nil:
		return c.adviseKnown(*c.Jobs.NeededTokens, each)
	}
	if n := c.BreakEven().NeededTokens; n != nil && *n == 0 {
		return Advice{ChooseFork, fmt.Sprintf("Forks cost %s and named agents at least %s (%s), even if a job needs nothing of the conversation.", money(c.Fork(turns)), money(c.Fresh(turns, 0)), each)}
	} else if n != nil {
		return Advice{ChooseFork, fmt.Sprintf("Fork if a job needs more than about %s of the conversation (%s); else a named agent is cheaper, because %s.", tokensText(*n), each, carries)}
	}
	return Advice{ChooseNamedAgent, fmt.Sprintf("Even if each job needs all of the conversation, forks cost %s and named agents %s (%s): %s.",
		money(c.Fork(turns)), money(c.Fresh(turns, all)), each, carries)}
}

func (c Comparison) adviseKnown(needed int64, each string) Advice {
	turns, n := c.turns(), c.FanOut.Children
	fork, fresh := c.Fork(turns), c.Fresh(turns, needed)
	who := fmt.Sprintf("%d forks cost %s and %d named agents %s", n, c.money(fork), n, c.money(fresh))
	if n == 1 {
		who = fmt.Sprintf("a fork costs %s and a named agent %s", c.money(fork), c.money(fresh))
	}
	idle := max(c.history()-needed, 0)
	if c.forkWins(needed) {
		return Advice{ChooseFork, fmt.Sprintf("A job needs %s of the conversation: %s, %s, as each agent would gather that anew.", tokensText(needed), each, who)}
	}
	if fork < fresh {
		return Advice{ChooseNamedAgent, fmt.Sprintf("A job needs %s of the conversation: %s, %s, too little to pay for the guards that forks need.", tokensText(needed), each, who)}
	}
	if idle == 0 {
		return Advice{ChooseNamedAgent, fmt.Sprintf("A job needs %s of the conversation, and gathering that anew is cheaper: %s, %s.", tokensText(needed), each, who)}
	}
	return Advice{ChooseNamedAgent, fmt.Sprintf("A job needs %s of the conversation, and a fork carries %s more that it does not need: %s, %s.", tokensText(needed), Grouped(idle), each, who)}
}

// money writes an amount: dollars, or without a price the tokens at the input price that it stands for.
func (c Comparison) money(n int64) string {
	if c.Priced {
		return Dollars(n)
	}
	return "the price of " + Grouped(TokenRates.TokenEquivalents(n)) + " plain tokens"
}

func requestsText(n int64) string {
	if n == 1 {
		return "1 request"
	}
	return Grouped(n) + " requests"
}
