package api

import (
	_ "embed"
	"net/http"

	"github.com/labstack/echo/v4"
)

// Document is the OpenAPI 3.1 description of the calls.
//
//go:embed openapi.yaml
var Document []byte

func (a *API) document(c echo.Context) error {
	return c.Blob(http.StatusOK, "application/yaml", Document)
}
