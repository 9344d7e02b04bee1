package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"forkyard/forkcore"
)

const (
	idempotencyHeader = "Idempotency-Key"
	// maxIdempotencyKey is in bytes.
	maxIdempotencyKey = 255
)

// decode reads the request's JSON object into v, strictly: what would be ignored or guessed is an error that names the
// field.
func decode(c echo.Context, v any) error {
	r := c.Request()
	if err := requireJSON(r); err != nil {
		return err
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return fmt.Errorf("reading the request body: %w", err)
	}
	return decodeStrict(body, v)
}

// decodeNothing accepts an empty body or an empty object.
func decodeNothing(c echo.Context) error {
	body, err := io.ReadAll(c.Request().Body)
	if err != nil {
		return fmt.Errorf("reading the request body: %w", err)
	}
	if len(body) == 0 {
		return nil
	}
	if err := requireJSON(c.Request()); err != nil {
		return err
	}
	return decodeStrict(body, &struct{}{})
}

// requireJSON is also a guard: a page of another site can send text/plain without asking, but not JSON.
func requireJSON(r *http.Request) error {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return NewProblem(http.StatusUnsupportedMediaType, "The request body must be JSON.", "Send the header Content-Type: application/json.")
	}
	return nil
}

func decodeStrict(body []byte, v any) error {
	const field = "body"
	trimmed := bytes.TrimLeft(body, " \t\r\n")
	switch {
	case len(trimmed) == 0:
		return forkcore.Invalid(field, "is empty, want a JSON object")
	case !utf8.Valid(body):
		return forkcore.Invalid(field, "is not valid UTF-8")
	case trimmed[0] != '{':
		return forkcore.Invalid(field, "must be a JSON object")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return decodeError(err, int64(len(body)))
	}
	end := d.InputOffset()
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return forkcore.Invalid(field, fmt.Sprintf("goes on behind the JSON object, which ends at byte %d", end))
	}
	return nil
}

func decodeError(err error, length int64) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return forkcore.Invalid("body", fmt.Sprintf("is not valid JSON at byte %d: %s", syntax.Offset, syntax))
	case errors.Is(err, io.ErrUnexpectedEOF):
		return forkcore.Invalid("body", fmt.Sprintf("ends at byte %d, in the middle of the JSON object", length))
	case errors.As(err, &kind):
		name := kind.Field
		if name == "" {
			name = "body"
		}
		return forkcore.Invalid(name, "must be "+inWords(kind.Type)+", not "+strings.Replace(kind.Value, "bool", "true or false", 1))
	}
	// encoding/json has no type for this error.
	if name, found := strings.CutPrefix(err.Error(), "json: unknown field "); found {
		if unquoted, err := strconv.Unquote(name); err == nil {
			name = unquoted
		}
		return forkcore.Invalid(name, "is not a field of this call")
	}
	return forkcore.Invalid("body", err.Error())
}

// inWords names a Go type as JSON has it.
func inWords(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Int, reflect.Int64:
		return "an integer"
	case reflect.Float64:
		return "a number"
	case reflect.Pointer:
		return inWords(t.Elem())
	}
	return "another type"
}

// idempotencyKey reads the header; empty when there is none.
func idempotencyKey(c echo.Context) (string, error) {
	key := c.Request().Header.Get(idempotencyHeader)
	if len(key) > maxIdempotencyKey {
		return "", forkcore.Invalid(idempotencyHeader, fmt.Sprintf("has %d bytes, at most %d are allowed", len(key), maxIdempotencyKey))
	}
	return key, nil
}
