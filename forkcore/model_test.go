package forkcore

import "testing"

func TestModelErrorText(t *testing.T) {
	tests := []struct {
		name string
		err  ModelError
		want string
	}{
		{"with a response", ModelError{Code: CodeOverloaded, Status: 529, Type: "overloaded_error", Message: "busy"}, "overloaded (HTTP 529 overloaded_error): busy"},
		{"without one", ModelError{Code: CodeStreamCut, Message: "connection reset"}, "stream_cut: connection reset"},
	}
	for _, tt := range tests {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
