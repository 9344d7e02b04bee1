package forkcore

import (
	"errors"
	"fmt"
	"testing"
)

func TestInvalidError(t *testing.T) {
	var invalid *InvalidError
	err := fmt.Errorf("create: %w", Invalid("model", "is unknown"))
	if !errors.As(err, &invalid) || invalid.Fields[0] != (FieldError{Field: "model", Message: "is unknown"}) {
		t.Errorf("Invalid gives %v", err)
	}
	tests := []struct {
		fields []FieldError
		want   string
	}{
		{nil, "invalid input"},
		{[]FieldError{{"a", "x"}}, "a: x"},
		{[]FieldError{{"a", "x"}, {"b", "y"}}, "a: x; b: y"},
	}
	for _, tt := range tests {
		if got := (&InvalidError{Fields: tt.fields}).Error(); got != tt.want {
			t.Errorf("%v reads %q, want %q", tt.fields, got, tt.want)
		}
	}
}

func TestConflictError(t *testing.T) {
	err := fmt.Errorf("stop: %w", &ConflictError{Message: "it has ended", NextStep: "look"})
	if !errors.Is(err, ErrConflict) || errors.Is(err, ErrNotFound) || err.Error() != "stop: it has ended" {
		t.Errorf("conflict is %v", err)
	}
}
