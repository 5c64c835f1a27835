package harp

import (
	"context"
	"time"
)

// Why returns all that keeps a queued job from starting at this moment, what it waits for first at the
// top; nothing if the job is about to start, or does not wait. Errors: as [Job.Status].
func (j *Job) Why(ctx context.Context) ([]Obstacle, error) {
	s, err := j.Status(ctx)
	return s.Obstacles, err
}

// ObstacleLastAttempt is the Reason of an obstacle: the last attempt was given up, may still run, and
// its host is to say what became of it before there is another.
const ObstacleLastAttempt = "last_attempt"

// Obstacle is one of the things that keep a queued job from starting.
type Obstacle struct {
	Reason string    `json:"reason" msgpack:"reason"`                     // a reason of a queued job, as JobStatus.Reason, or ObstacleLastAttempt
	Since  time.Time `json:"since,omitzero" msgpack:"since,omitempty"`    // since when it is in the way, UTC; zero: not known
	Until  time.Time `json:"until,omitzero" msgpack:"until,omitempty"`    // when it will be out of the way, at the latest; zero: not known
	Slots  int       `json:"slots,omitempty" msgpack:"slots,omitempty"`   // queue, agent_busy: how many jobs may run at a time
	Jobs   []string  `json:"jobs,omitempty" msgpack:"jobs,omitempty"`     // queue, agent_busy: the first ten jobs that do
	Ahead  int       `json:"ahead,omitempty" msgpack:"ahead,omitempty"`   // queue: how many of its jobs stand before this one
	Batch  string    `json:"batch,omitempty" msgpack:"batch,omitempty"`   // batch: its id
	By     Principal `json:"by,omitzero" msgpack:"by,omitempty"`          // paused, batch, window: who has paused it
	Why    string    `json:"why,omitempty" msgpack:"why,omitempty"`       // paused, batch, window: in the words of who has, or of the window
	Window string    `json:"window,omitempty" msgpack:"window,omitempty"` // window: its name; empty: its host is paused
	Only   bool      `json:"only,omitempty" msgpack:"only,omitempty"`     // window: it lets start within its spans alone, and none covers this moment
}
