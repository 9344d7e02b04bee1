package modelsim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// apiError is an error answer of the API: its HTTP status, its type and message, and what a 429 adds.
type apiError struct {
	status     int
	kind       string
	message    string
	code       string        // details.error_code, "" for none
	retryAfter time.Duration // the retry-after header, 0 for none
}

func (e *apiError) Error() string { return fmt.Sprintf("%d %s: %s", e.status, e.kind, e.message) }

func invalid(format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, kind: "invalid_request_error", message: fmt.Sprintf(format, args...)}
}

// kindOf is the error type that goes with a status.
func kindOf(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusPaymentRequired:
		return "billing_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusConflict:
		return "conflict_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case http.StatusGatewayTimeout:
		return "timeout_error"
	case statusOverloaded:
		return "overloaded_error"
	}
	if status >= 400 && status < 500 {
		return "invalid_request_error"
	}
	return "api_error"
}

// statusOverloaded is the provider's own status for a model without free capacity.
const statusOverloaded = 529

// statusOf is the reverse of kindOf, for an error event that a request without streaming gets as a status.
func statusOf(kind string) int {
	for _, status := range []int{400, 401, 402, 403, 404, 409, 413, 429, 504, statusOverloaded} {
		if kindOf(status) == kind {
			return status
		}
	}
	return http.StatusInternalServerError
}

type errorBody struct {
	Type      string      `json:"type"`
	Error     errorDetail `json:"error"`
	RequestID string      `json:"request_id,omitempty"`
}

type errorDetail struct {
	Type    string            `json:"type"`
	Message string            `json:"message"`
	Details map[string]string `json:"details,omitempty"`
}

func (e *apiError) body(requestID string) errorBody {
	b := errorBody{Type: "error", Error: errorDetail{Type: e.kind, Message: e.message}, RequestID: requestID}
	if e.code != "" {
		b.Error.Details = map[string]string{"error_code": e.code}
	}
	return b
}

func (e *apiError) write(w http.ResponseWriter, requestID string) {
	if e.retryAfter > 0 {
		w.Header().Set("retry-after", strconv.Itoa(int((e.retryAfter+time.Second-1)/time.Second)))
	}
	writeJSON(w, e.status, e.body(requestID))
}

// writeJSON writes v without HTML escapes: the provider sends < > & as they are.
func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("content-type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // the only failure left is a client that went away
}
