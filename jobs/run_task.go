// Package jobs puts runs on asynq's ready-list and takes them off it. The
// list is only a hint: states, retries, delays, cancelling and recovery are in
// the run scripts and the sweep, so a handler always returns nil, nothing is
// retained, and no task has a deadline that asynq could act on.
package jobs

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"forkyard/jobs/engine"
)

// TypeRun is the task type of a wake.
const TypeRun = "run:wake"

// Queue is the asynq queue that wakes go through.
const Queue = "default"

type runPayload struct {
	RunID string `json:"run_id"`
	Wake  int64  `json:"wake"`
}

// TaskID names the task of a wake. A second enqueue of the same wake conflicts
// with the first, which is success.
func TaskID(w engine.Wake) string { return fmt.Sprintf("%s.%d", w.RunID, w.N) }

// newRunTask builds the task. After its worker was killed asynq redelivers it,
// which must never archive it: the redelivered wake is stale and ends quietly.
// Without a far deadline asynq would schedule a second handler after 30 minutes beside the
// first one.
func newRunTask(w engine.Wake, now time.Time) (*asynq.Task, error) {
	payload, err := json.Marshal(runPayload{RunID: w.RunID, Wake: w.N})
	if err != nil {
		return nil, err
	}
	return asynq.NewTask(TypeRun, payload,
		asynq.TaskID(TaskID(w)), asynq.Queue(Queue), asynq.MaxRetry(1000), asynq.Retention(0),
		asynq.Deadline(now.AddDate(10, 0, 0))), nil
}

func parseRunTask(t *asynq.Task) (engine.Wake, error) {
	var p runPayload
	if err := json.Unmarshal(t.Payload(), &p); err != nil {
		return engine.Wake{}, fmt.Errorf("payload of %s: %w", t.Type(), err)
	}
	if p.RunID == "" || p.Wake < 1 {
		return engine.Wake{}, errors.New("payload names no run or no wake")
	}
	return engine.Wake{RunID: p.RunID, N: p.Wake}, nil
}
