package anthropic

import (
	"testing"
)

func newTestClient(t testing.TB, o Options) *Client {
	t.Helper()
	if o.APIKey == "" {
		o.APIKey = "sk-test-0123456789"
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
