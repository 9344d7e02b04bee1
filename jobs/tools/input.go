package tools

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"forkyard/forkcore"
)

// field is one input of a tool. into points to a string, an int or a bool that
// holds the default.
type field struct {
	name     string
	into     any
	required bool
}

// decodeInput fills the fields from the JSON object a model wrote. It is strict
// about names, because a misspelt optional field would silently do something
// else, and lenient about numbers and booleans in quotes, which models write.
// null counts as absent. Errors are meant to be read by the model.
func decodeInput(tool string, raw json.RawMessage, fields []field) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = json.RawMessage("{}")
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal(raw, &values); err != nil || values == nil {
		return fmt.Errorf("the input of %s must be a JSON object with %s", tool, fieldNames(fields))
	}
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if !slices.ContainsFunc(fields, func(f field) bool { return f.name == name }) {
			return fmt.Errorf("unknown field %s: %s takes %s", quote(name), tool, fieldNames(fields))
		}
	}
	for _, f := range fields {
		value, ok := values[f.name]
		if !ok || string(value) == "null" {
			if f.required {
				return fmt.Errorf("%s is required", f.name)
			}
			continue
		}
		if err := f.decode(value); err != nil {
			return err
		}
	}
	return nil
}

func (f field) decode(value json.RawMessage) error {
	var text string
	isText := json.Unmarshal(value, &text) == nil
	bare := string(value)
	if isText {
		bare = strings.TrimSpace(text)
	}
	switch into := f.into.(type) {
	case *string:
		if !isText {
			return fmt.Errorf("%s must be a string, got %s", f.name, shorten(bare))
		}
		if f.required && text == "" {
			return fmt.Errorf("%s is required and must not be empty", f.name)
		}
		// No path, pattern or command with a NUL can reach the system.
		if strings.Contains(text, "\x00") {
			return fmt.Errorf("%s must not contain a NUL character", f.name)
		}
		*into = text
	case *int:
		n, err := strconv.ParseFloat(bare, 64)
		if err != nil || n != math.Trunc(n) || math.Abs(n) > math.MaxInt32 {
			return fmt.Errorf("%s must be a whole number, got %s", f.name, shorten(bare))
		}
		*into = int(n)
	case *bool:
		if bare != "true" && bare != "false" {
			return fmt.Errorf("%s must be true or false, got %s", f.name, shorten(bare))
		}
		*into = bare == "true"
	default:
		// A programmer's error: the tables of fields are constants.
		panic(fmt.Sprintf("tools: field %s decodes into %T", f.name, f.into))
	}
	return nil
}

func fieldNames(fields []field) string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	return strings.Join(names, ", ")
}

func quote(s string) string { return strconv.Quote(forkcore.CutText(forkcore.CleanText(s), 200)) }

func shorten(s string) string { return forkcore.CutText(forkcore.CleanText(s), 60) }
