package web

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/a-h/templ"

	"forkyard/forkcore"
)

// directiveRow is one directive as it is being typed. ID stays the same while rows around it come and go, so that a
// redraw finds the row again and leaves the cursor and the text in it alone.
type directiveRow struct {
	ID            int
	Title, Prompt string
}

func (r directiveRow) empty() bool {
	return strings.TrimSpace(r.Title) == "" && strings.TrimSpace(r.Prompt) == ""
}

// The ids of a row's fields.
func (r directiveRow) titleID() string  { return "title-" + strconv.Itoa(r.ID) }
func (r directiveRow) promptID() string { return "prompt-" + strconv.Itoa(r.ID) }

// directivesForm is the dispatch form as it is being typed: what was sent, and what is wrong with it.
type directivesForm struct {
	// Key makes a second sending of the same form start nothing.
	Key string
	// Next is a number that no row has had and that grows with every redraw.
	Next int
	Rows []directiveRow

	Isolation, Gate, Budget string
	// Notify is when the main agent hears of the forks; Minutes, when given, is how long they have.
	Notify, Minutes string
	// Turns and Needed are what is expected of a job: requests, and tokens of the conversation. Only the advice asks.
	Turns, Needed string

	List   string // to be turned into rows
	Blocks bool   // blank lines separate the directives of List, not line ends
	Same   string // prompt to be repeated
	Times  string

	// Focus is the id of the field to type in next.
	Focus string
	formErrors
}

// formErrors are messages at fields.
type formErrors struct {
	Errors []fieldError
}

// fieldError is a message at the field with an id; Name is how a list of all messages calls the field.
type fieldError struct{ ID, Name, Message string }

func (e *formErrors) add(id, name, format string, args ...any) {
	e.Errors = append(e.Errors, fieldError{ID: id, Name: name, Message: fmt.Sprintf(format, args...)})
}

// at joins the messages at a field.
func (e formErrors) at(id string) string {
	var messages []string
	for _, f := range e.Errors {
		if f.ID == id {
			messages = append(messages, f.Message)
		}
	}
	return strings.Join(messages, "; ")
}

// marks are the attributes of a field that tell what is wrong with it.
func (e formErrors) marks(id string) templ.Attributes {
	if e.at(id) == "" {
		return nil
	}
	return templ.Attributes{"aria-invalid": "true", "aria-describedby": id + "-error"}
}

// listID and sameID are new ids when the field is empty: a redraw keeps what a field shows while its id stays, and text
// that became rows must go.
func (f directivesForm) listID() string { return f.onceID("list", f.List) }
func (f directivesForm) sameID() string { return f.onceID("same", f.Same) }

func (f directivesForm) onceID(name, text string) string {
	if text == "" {
		return fmt.Sprintf("%s-%d", name, f.Next)
	}
	return name
}

// merged is one set of attributes of several.
func merged(sets []templ.Attributes) templ.Attributes {
	all := templ.Attributes{}
	for _, set := range sets {
		maps.Copy(all, set)
	}
	return all
}

// The ids of the fields that are there once.
const (
	fieldIsolation = "isolation"
	fieldGate      = "gate"
	fieldBudget    = "budget_usd"
	fieldNotify    = "notify"
	fieldMinutes   = "deadline_minutes"
	fieldTurns     = "turns"
	fieldNeeded    = "needed_tokens"
	fieldTimes     = "times"
	fieldAdd       = "add"
)

const (
	// startRows is how many rows an untouched form has.
	startRows = 2
	// maxMinutes is the longest time that a fan-out may be given: 30 days.
	maxMinutes = 30 * 24 * 60
	// highestRow keeps numbers that a browser sends back within what can be counted on.
	highestRow = 1 << 30
)

// newDirectivesForm is an untouched form, or one with the prompts and titles of a link.
func newDirectivesForm(key string, query url.Values) directivesForm {
	f := directivesForm{Key: key, Isolation: "shared", Gate: string(forkcore.GateAuto), Notify: string(forkcore.NotifyAllDone), Times: "3"}
	prompts, titles := query["prompt"], query["title"]
	for i := range min(max(len(prompts), len(titles)), forkcore.MaxDirectives) {
		f.append(at(titles, i), at(prompts, i))
	}
	if len(f.Rows) == 0 {
		for range startRows {
			f.append("", "")
		}
	}
	f.Focus = f.Rows[0].promptID()
	return f
}

// at is the i-th text with the line ends of Unix: browsers send others than they show.
func at(texts []string, i int) string {
	if i >= len(texts) {
		return ""
	}
	return strings.ReplaceAll(texts[i], "\r\n", "\n")
}

// parseDirectivesForm reads what a browser sent. It refuses nothing: a form that is drawn again must show it all.
func parseDirectivesForm(v url.Values) directivesForm {
	f := directivesForm{
		Key: v.Get("key"), Isolation: v.Get(fieldIsolation), Gate: v.Get(fieldGate), Budget: strings.TrimSpace(v.Get(fieldBudget)),
		Notify: v.Get(fieldNotify), Minutes: strings.TrimSpace(v.Get(fieldMinutes)),
		Turns: strings.TrimSpace(v.Get(fieldTurns)), Needed: strings.TrimSpace(v.Get(fieldNeeded)),
		List: at(v["list"], 0), Blocks: v.Get("separator") == "blank", Same: at(v["same"], 0), Times: strings.TrimSpace(v.Get(fieldTimes)),
	}
	prompts, titles, ids := v["prompt"], v["title"], v["row"]
	for i := range max(len(prompts), len(titles)) {
		id, err := strconv.Atoi(at(ids, i))
		if err != nil || id < 0 || id > highestRow || slices.ContainsFunc(f.Rows, func(r directiveRow) bool { return r.ID == id }) {
			id = -1
		}
		f.Rows = append(f.Rows, directiveRow{ID: id, Title: at(titles, i), Prompt: at(prompts, i)})
		f.Next = max(f.Next, id+1)
	}
	if next, err := strconv.Atoi(v.Get("next")); err == nil && next > f.Next && next <= highestRow {
		f.Next = next
	}
	f.Next++
	for i := range f.Rows {
		if f.Rows[i].ID < 0 {
			f.Rows[i].ID, f.Next = f.Next, f.Next+1
		}
	}
	return f
}

func (f *directivesForm) append(title, prompt string) *directiveRow {
	f.Rows = append(f.Rows, directiveRow{ID: f.Next, Title: title, Prompt: prompt})
	f.Next++
	return &f.Rows[len(f.Rows)-1]
}

// filled counts the rows with something in them.
func (f directivesForm) filled() int {
	n := 0
	for _, r := range f.Rows {
		if !r.empty() {
			n++
		}
	}
	return n
}

// act does what a button of the form says: add, remove:<row>, paste or repeat. Any other word changes nothing.
func (f *directivesForm) act(action string) {
	name, argument, _ := strings.Cut(action, ":")
	switch name {
	case "add":
		if len(f.Rows) >= forkcore.MaxDirectives {
			f.add(fieldAdd, "Add a directive", "a fan-out has at most %d directives", forkcore.MaxDirectives)
			break
		}
		f.Focus = f.append("", "").promptID()
	case "remove":
		i := slices.IndexFunc(f.Rows, func(r directiveRow) bool { return strconv.Itoa(r.ID) == argument })
		if i < 0 {
			break
		}
		f.Rows = slices.Delete(f.Rows, i, i+1)
		if len(f.Rows) == 0 {
			f.append("", "")
		}
		f.Focus = f.Rows[min(i, len(f.Rows)-1)].promptID()
	case "paste":
		prompts := parseList(f.List, f.Blocks)
		if len(prompts) == 0 {
			f.add(f.listID(), "List", "is empty; paste one directive a line")
			break
		}
		if f.fill(f.listID(), "List", len(prompts), func(i int) (string, string) { return "", prompts[i] }) {
			f.List = ""
		}
	case "repeat":
		times, err := strconv.Atoi(f.Times)
		if err != nil || times < 1 || times > forkcore.MaxDirectives {
			f.add(fieldTimes, "Times", "is %q; give a number from 1 to %d", f.Times, forkcore.MaxDirectives)
		}
		if strings.TrimSpace(f.Same) == "" {
			f.add(f.sameID(), "Prompt to repeat", "is empty; write what each fork should do")
		}
		if len(f.Errors) > 0 {
			break
		}
		title := forkcore.Headline(f.Same, 60)
		same := f.Same
		if f.fill(fieldTimes, "Times", times, func(i int) (string, string) { return fmt.Sprintf("%s %d/%d", title, i+1, times), same }) {
			f.Same = ""
		}
	}
}

// fill puts n new directives behind the filled rows and reports whether they fit.
func (f *directivesForm) fill(id, name string, n int, row func(int) (title, prompt string)) bool {
	if filled := f.filled(); filled+n > forkcore.MaxDirectives {
		f.add(id, name, "makes %d directives with the %d above; a fan-out has at most %d", filled+n, filled, forkcore.MaxDirectives)
		return false
	}
	f.Rows = slices.DeleteFunc(f.Rows, directiveRow.empty)
	for i := range n {
		r := f.append(row(i))
		if i == 0 {
			f.Focus = r.promptID()
		}
	}
	return true
}

// spec is the wish, without the empty rows; rows[i] is the row of the i-th directive. What is wrong with it is added to
// the form. The budget is in US dollars.
func (f *directivesForm) spec() (spec forkcore.ForkSpec, rows []directiveRow) {
	spec = forkcore.ForkSpec{Isolation: f.Isolation, Gate: forkcore.GateMode(f.Gate), Notify: forkcore.NotifyPolicy(f.Notify)}
	if minutes, err := parseCount(f.Minutes, 1, maxMinutes); err != nil {
		f.add(fieldMinutes, "Time for the forks", "%v", err)
	} else if minutes != nil {
		spec.DeadlineSeconds = new(float64(*minutes) * 60)
	}
	for _, r := range f.Rows {
		if !r.empty() {
			spec.Directives = append(spec.Directives, forkcore.Directive{Title: r.Title, Prompt: r.Prompt})
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 && len(f.Rows) > 0 {
		f.add(f.Rows[0].promptID(), "Directives", "all are empty; say what at least one fork should do")
	}
	budget, err := parseDollars(f.Budget)
	if err != nil {
		f.add(fieldBudget, "Budget", "%v", err)
	}
	spec.BudgetUSD = budget
	var errs map[string]error
	spec.Jobs, errs = f.jobs()
	for _, field := range []struct{ id, name string }{{fieldTurns, "Requests of a job"}, {fieldNeeded, "Tokens that a job needs"}} {
		if err := errs[field.id]; err != nil {
			f.add(field.id, field.name, "%v", err)
		}
	}
	return spec, rows
}

// jobs is what is expected of a job, as far as it can be read; the errors are by field.
func (f *directivesForm) jobs() (forkcore.Jobs, map[string]error) {
	errs := map[string]error{}
	var j forkcore.Jobs
	if n, err := parseCount(f.Turns, 1, forkcore.MaxTurns); err != nil {
		errs[fieldTurns] = err
	} else if n != nil {
		j.Turns = *n
	}
	var err error
	if j.NeededTokens, err = parseCount(f.Needed, 0, forkcore.MaxNeededTokens); err != nil {
		errs[fieldNeeded] = err
	}
	return j, errs
}

// parseCount reads a number as a person writes it; nil for none.
func parseCount(text string, least, most int64) (*int64, error) {
	text = strings.NewReplacer(",", "", " ", "").Replace(text)
	if text == "" {
		return nil, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		return nil, fmt.Errorf("is %q; give a number from %s to %s, or leave it empty", text, grouped(least), grouped(most))
	}
	return &n, nil
}

// refuse puts the messages of an engine at the fields that they are about. rows are those of spec.
func (f *directivesForm) refuse(fields []forkcore.FieldError, rows []directiveRow) {
	for _, e := range fields {
		id, name := "", e.Field
		var i int
		var part string
		if n, _ := fmt.Sscanf(strings.ReplaceAll(e.Field, "].", "] "), "directives[%d] %s", &i, &part); n == 2 && i >= 0 && i < len(rows) {
			position := slices.Index(f.Rows, rows[i]) + 1
			id, name = rows[i].promptID(), fmt.Sprintf("Prompt of directive %d", position)
			if part == "title" {
				id, name = rows[i].titleID(), fmt.Sprintf("Title of directive %d", position)
			}
		} else {
			switch e.Field {
			case fieldGate:
				id, name = fieldGate, "Gate"
			case fieldIsolation:
				id, name = fieldIsolation, "Isolation"
			case fieldBudget:
				id, name = fieldBudget, "Budget"
			case fieldNotify:
				id, name = fieldNotify, "Results"
			case "jobs.turns":
				id, name = fieldTurns, "Requests of a job"
			case "jobs.needed_tokens":
				id, name = fieldNeeded, "Tokens that a job needs"
			case "directives":
				id, name = fieldAdd, "Directives"
			}
		}
		f.add(id, name, "%s", e.Message)
	}
}

// parseDollars reads an amount as a person writes it; nil for none.
func parseDollars(text string) (*float64, error) {
	text = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(text), "$"))
	if text == "" {
		return nil, nil
	}
	usd, err := strconv.ParseFloat(text, 64)
	if err != nil || usd != usd || usd > 1e12 || usd < -1e12 {
		return nil, fmt.Errorf("is %q; write an amount in US dollars such as 0.50", text)
	}
	return &usd, nil
}

// parseList turns pasted text into prompts: one a line, or, with blocks, one for each run of lines between blank ones.
// Bullets and numbers at the start of an item are dropped.
func parseList(text string, blocks bool) []string {
	var items []string
	var item []string
	end := func() {
		if s := strings.TrimSpace(stripBullet(strings.TrimSpace(strings.Join(item, "\n")))); s != "" {
			items = append(items, s)
		}
		item = item[:0]
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \t\r\n")
		if strings.TrimSpace(line) != "" {
			item = append(item, line)
			if blocks {
				continue
			}
		}
		end()
	}
	end()
	return items
}

// stripBullet drops "- ", "* ", "+ ", "• ", "– ", "1. ", "1) ", "(1) " and a check box behind it.
func stripBullet(s string) string {
	rest := s
	if cut, found := cutAny(s, "-", "*", "+", "•", "‣", "–", "—"); found {
		rest = cut
	} else {
		inner, open := strings.CutPrefix(s, "(")
		digits := strings.TrimLeft(inner, "0123456789")
		if n := len(inner) - len(digits); n > 0 && n <= 3 {
			closers := []string{".", ")"}
			if open {
				closers = []string{")"}
			}
			if cut, found := cutAny(digits, closers...); found {
				rest = cut
			}
		}
	}
	if rest == s {
		return s
	}
	for _, box := range []string{"[ ]", "[x]", "[X]"} {
		if cut, found := cutAny(strings.TrimLeft(rest, " \t"), box); found {
			return cut
		}
	}
	return rest
}

// cutAny cuts one of the prefixes off when a space or the end follows it.
func cutAny(s string, prefixes ...string) (string, bool) {
	for _, p := range prefixes {
		if rest, found := strings.CutPrefix(s, p); found && (rest == "" || rest[0] == ' ' || rest[0] == '\t') {
			return rest, true
		}
	}
	return s, false
}

// untouched reports whether nothing was typed or linked into the form.
func (f directivesForm) untouched() bool {
	return f.filled() == 0 && f.Next == startRows && len(f.Errors) == 0
}

// focused reports whether the field with an id gets the focus; messages come first.
func (f directivesForm) focused(id string) bool { return f.Focus == id && len(f.Errors) == 0 }
