package api

import (
	"net/http"

	"github.com/labstack/echo/v4"
)

// DocumentPath is the one path below the prefix that needs no token.
const DocumentPath = "/openapi.yaml"

// Mount adds every call to the group, whose prefix is /api/v1. Authentication, host and origin checks and the body
// limit are the group's middleware; errors go to echo's error handler, which calls WriteProblem.
func (a *API) Mount(g *echo.Group) {
	// Streams: no middleware here may buffer, compress or time out a response.
	get(g, "/sessions/:id/events", a.sessionEvents)
	get(g, "/events", a.allEvents)

	g.POST("/sessions", a.createSession)
	get(g, "/sessions", a.listSessions)
	get(g, "/sessions/:id", a.getSession)
	g.PATCH("/sessions/:id", a.changeSession)
	g.POST("/sessions/:id/messages", a.sendMessage)
	g.POST("/sessions/:id/forks/quote", a.quoteForks)
	g.POST("/sessions/:id/forks", a.fork)
	g.POST("/sessions/:id/stop", a.stop)
	g.POST("/sessions/:id/archive", a.archiveSession)

	get(g, "/runs/:id", a.getRun)
	g.POST("/runs/:id/cancel", a.cancel)
	g.POST("/runs/:id/background", a.background)
	g.POST("/runs/:id/resume", a.resume)
	get(g, "/runs/:id/transcript", a.transcript)
	get(g, "/runs/:id/requests", a.listRequests)
	get(g, "/runs/:id/requests/:n", a.getRequest)
	get(g, "/runs/:id/requests/:n/body", a.requestBody)

	get(g, "/dispatches/:id", a.getDispatch)
	g.PATCH("/dispatches/:id", a.changeDispatch)
	g.POST("/dispatches/:id/resume", a.resumeDispatch)
	g.POST("/dispatches/:id/retry", a.retryDispatch)
	g.POST("/dispatches/:id/deliver", a.deliverNotices)

	get(g, "/snapshots/:sha256", a.getSnapshot)
	get(g, "/snapshots/:sha256/bytes", a.snapshotBytes)

	get(g, "/queue", a.getQueue)
	g.POST("/queue/pause", a.pauseQueue)
	g.POST("/queue/resume", a.resumeQueue)
	g.POST("/workers/:id/drain", a.drainWorker)
	g.POST("/workers/:id/undrain", a.undrainWorker)

	get(g, "/flags", a.listFlags)
	g.PUT("/flags/:name", a.setFlag)

	get(g, "/provider", a.getProvider)
	get(g, "/provider/check", a.lookAtProvider)
	g.POST("/provider/check", a.checkProvider)
	g.PUT("/provider/key", a.replaceKey)

	get(g, "/storage", a.getStorage)

	get(g, DocumentPath, a.document)
}

// get routes HEAD beside GET, which echo does not do by itself; net/http leaves the body out.
func get(g *echo.Group, path string, h echo.HandlerFunc) {
	g.GET(path, h)
	g.HEAD(path, h)
}

func isHead(c echo.Context) bool { return c.Request().Method == http.MethodHead }
