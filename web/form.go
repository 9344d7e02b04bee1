package web

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/labstack/echo/v4"

	"forkyard/web/api"
)

// maxFormKey is the longest key of a form, in bytes. Ours have 26 to 32.
const maxFormKey = 100

// usableKey keeps the key of a form and makes one for a form that brings none, or none of ours.
func usableKey(key string) string {
	if key == "" || len(key) > maxFormKey {
		return newSecret()
	}
	return key
}

// readForm reads the fields of a form that a page sent. What is no form is answered 400.
func readForm(c echo.Context) (url.Values, error) {
	r := c.Request()
	if _, err := c.FormParams(); err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return nil, fmt.Errorf("reading the form: %w", err)
		}
		return nil, api.NewProblem(http.StatusBadRequest, "The form could not be read: "+err.Error()+".", "Send it from the page again.")
	}
	// Without the query: what is sent does not stand in addresses, which end up in logs.
	return r.PostForm, nil
}
