package memstore_test

import (
	"testing"

	"forkyard/jobs/engine"
	"forkyard/jobs/engine/enginetest"
	"forkyard/jobs/engine/memstore"
)

func TestConformance(t *testing.T) {
	enginetest.RunStore(t, func(*testing.T) engine.Store { return memstore.New() })
}
