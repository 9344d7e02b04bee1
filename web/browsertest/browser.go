// Package browsertest drives a headless Chromium in tests: the pages as people meet them, with keyboard, mouse, themes,
// widths and the content security policy on. Whatever a page complains about fails the test that looked at it.
package browsertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/chromedp/chromedp"
)

// Browser is one Chromium that the tests of a binary share; each test has a profile of its own in it.
type Browser struct {
	ctx    context.Context
	cancel context.CancelFunc
	dir    string
}

// Start starts a Chromium with a data folder of its own. It is an error when none is installed.
func Start() (*Browser, error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return nil, errors.New("chromium is not installed: install chromium (make test does)")
	}
	dir, err := os.MkdirTemp("", "forkyard-chromium-")
	if err != nil {
		return nil, err
	}
	// Not the defaults of chromedp: they keep hidden tabs from being treated as hidden ones.
	allocator, cancelAllocator := chromedp.NewExecAllocator(context.Background(),
		chromedp.ExecPath(path), chromedp.UserDataDir(dir), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("disable-extensions", true),
		chromedp.Flag("disable-breakpad", true), chromedp.Flag("disable-hang-monitor", true),
		chromedp.Flag("password-store", "basic"), chromedp.Flag("force-color-profile", "srgb"),
		chromedp.Flag("lang", "en-US"),
		chromedp.Env("TZ=UTC", "LANGUAGE=en_US"),
	)
	ctx, cancelContext := chromedp.NewContext(allocator)
	b := &Browser{ctx: ctx, dir: dir, cancel: func() { cancelContext(); cancelAllocator() }}
	if err := chromedp.Do(ctx); err != nil {
		b.cancel()
		return nil, errors.Join(fmt.Errorf("start chromium: %w", err), os.RemoveAll(dir))
	}
	return b, nil
}

// Stop ends the browser and removes its data.
func (b *Browser) Stop() error {
	// Asked to close it ends its children too; what is left after that is killed.
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
	defer cancel()
	err := chromedp.Cancel(ctx)
	b.cancel()
	if gone := os.RemoveAll(b.dir); gone != nil {
		err = errors.Join(err, gone)
	}
	return err
}
