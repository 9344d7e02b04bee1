package web

import (
	"github.com/labstack/echo/v4"

	"forkyard/static"
)

// The paths that pages link to. Those of the API are in api/routes.go.
const (
	pathHome       = "/"
	pathLive       = "/live" // of the first page
	pathSample     = "/sample"
	pathProvider   = "/provider"
	pathCheck      = "/provider/check"
	pathKey        = "/provider/key"
	pathBanner     = "/provider/banner"
	pathModels     = "/models"
	pathQueue      = "/queue" // then /state, /pause, /resume, /workers/:id/drain
	pathStorage    = "/storage"
	pathSession    = "/sessions/" // :id, then /live, /messages, /stop, /archive, /budget, /dispatch
	pathSessions   = "/sessions"
	pathNewSession = "/sessions/new"
	pathRun        = "/runs/"       // :id, then /live, /cancel, /background, /resume, /requests/:n
	pathDispatch   = "/dispatches/" // :id, then /resume, /retry, /deliver, /budget
	pathCompare    = "/compare"
	pathChecks     = "/checks"
	pathLogin      = "/login"
	pathLogout     = "/logout"
	pathStatic     = "/static/"
	pathHealth     = "/healthz"
	pathReady      = "/readyz"
	pathMetrics    = "/metrics"
	prefixAPI      = "/api/v1"
)

func (s *Server) routes() {
	e := s.echo
	// In this order. Nothing here compresses, buffers or times out a response, because of the streams.
	e.Use(s.count, s.identify, s.recoverPanic, securityHeaders, s.checkHost, s.authenticate, limitBody)

	s.api.Mount(e.Group(prefixAPI))

	get(e, pathHome, s.home)
	get(e, pathLive, s.homeLive)
	e.POST(pathSample, s.startSample)
	get(e, pathProvider, s.providerPage)
	e.POST(pathCheck, s.checkProvider)
	e.POST(pathKey, s.replaceKey)
	get(e, pathBanner, s.bannerPart)
	get(e, pathModels, s.modelsPage)
	get(e, pathStorage, s.storagePage)
	get(e, pathQueue, s.queuePage)
	get(e, pathQueue+"/state", s.queuePart)
	e.POST(pathQueue+"/pause", s.pauseQueue)
	e.POST(pathQueue+"/resume", s.resumeQueue)
	e.POST(pathQueue+"/workers/:id/drain", s.drainWorker)
	get(e, pathNewSession, s.newSessionPage)
	e.POST(pathSessions, s.createSession)
	get(e, pathSession+":id", s.sessionPage)
	get(e, pathSession+":id/live", s.sessionLive)
	e.POST(pathSession+":id/messages", s.sendMessage)
	e.POST(pathSession+":id/stop", s.stopSession)
	e.POST(pathSession+":id/archive", s.archiveSession)
	get(e, pathSession+":id/dispatch", s.dispatchPage)
	e.POST(pathSession+":id/dispatch", s.dispatch)
	e.POST(pathSession+":id/dispatch/quote", s.dispatchQuote)
	get(e, pathRun+":id", s.runPage)
	get(e, pathRun+":id/live", s.runLive)
	e.POST(pathRun+":id/cancel", s.cancelRun)
	e.POST(pathRun+":id/background", s.backgroundRun)
	e.POST(pathRun+":id/resume", s.resumeRun)
	get(e, pathRun+":id/requests/:n", s.requestPage)
	e.POST(pathDispatch+":id/resume", s.resumeDispatch)
	e.POST(pathDispatch+":id/retry", s.retryDispatch)
	e.POST(pathDispatch+":id/deliver", s.deliverNotices)
	e.POST(pathDispatch+":id/budget", s.setBudget)
	e.POST(pathSession+":id/budget", s.setBudget)
	get(e, pathCompare, s.comparePage)
	get(e, pathChecks, s.checksPage)
	e.POST(pathChecks, s.checkPasted)
	get(e, pathLogin, s.loginPage)
	e.POST(pathLogin, s.signIn)
	e.POST(pathLogout, s.signOut)
	get(e, pathStatic+"*", echo.WrapHandler(static.Handler()))

	get(e, pathHealth, s.health)
	get(e, pathReady, s.ready)
	get(e, pathMetrics, s.metrics)
}

// get routes HEAD beside GET, which echo does not do by itself.
func get(e *echo.Echo, path string, h echo.HandlerFunc) {
	e.GET(path, h)
	e.HEAD(path, h)
}
