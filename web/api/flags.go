package api

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"forkyard/forkcore"
)

func (a *API) listFlags(c echo.Context) error {
	flags, err := a.runner.Flags(c.Request().Context())
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, struct {
		Items      []forkcore.Flag `json:"items"`
		NextCursor *string         `json:"next_cursor"`
	}{flags, nil})
}

func (a *API) setFlag(c echo.Context) error {
	var body struct {
		Value *bool `json:"value"`
	}
	if err := decode(c, &body); err != nil {
		return err
	}
	if body.Value == nil {
		return forkcore.Invalid("value", "is missing; give true or false")
	}
	f, err := a.runner.SetFlag(c.Request().Context(), c.Param("name"), *body.Value)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, f)
}
