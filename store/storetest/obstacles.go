package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// wantObstacles checks what keeps a job from starting, in the words of obstacleText.
func (w *world) wantObstacles(j *store.Job, want ...string) {
	w.Helper()
	all, err := w.st.Obstacles(w.ctx(), j.ID)
	w.must(err)
	var got []string
	for _, o := range all {
		got = append(got, w.obstacleText(o))
	}
	if strings.Join(got, "; ") != strings.Join(want, "; ") {
		w.Fatalf("it waits for %q, want %q", got, want)
	}
}

func (w *world) obstacleText(o harp.Obstacle) string {
	text := o.Reason
	if !o.Since.IsZero() {
		text += fmt.Sprint(" since ", o.Since.Sub(w.now))
	}
	if !o.Until.IsZero() {
		text += fmt.Sprint(" until ", o.Until.Sub(w.now))
	}
	if o.Slots > 0 {
		text += fmt.Sprintf(" %d of %d, %d ahead", len(o.Jobs), o.Slots, o.Ahead)
	}
	return text + strings.TrimRight(" "+o.By.Name, " ")
}

var obstacles = []rule{
	{"obstacles/none", "nothing keeps a job that runs, or has ended", func(w *world) {
		j := w.running()
		w.wantObstacles(j)
		w.apply(j, store.End)
		w.wantObstacles(j)
		_, err := w.st.Obstacles(w.ctx(), w.id())
		w.wants(err, harp.ErrNotFound)
	}},
	{"obstacles/all", "all that keeps a job is told, and first what it waits for", func(w *world) {
		w.gate("h")
		q := queue("q")
		w.submit(in(q), slots(1))
		second, third := w.submit(in(q)), w.submit(in(q), on("away"), notBefore(w.now.Add(time.Minute)))
		w.wantObstacles(second, "queue 1 of 1, 0 ahead")
		w.wantObstacles(third, "start_after until 1m0s", "queue 1 of 1, 1 ahead", "offline")
		w.pauseBy(ada, q, true)
		w.wantObstacles(second, "paused since 0s ada", "queue 1 of 1, 0 ahead")
		w.pass(2 * time.Minute)
		w.advance()
		w.wantObstacles(third, "paused since -2m0s ada", "queue 1 of 1, 1 ahead", "offline")
		w.pauseFor(q, "disk", time.Hour)
		w.resize(q, 1)
		w.wantObstacles(second, "paused since 0s until 1h0m0s ada", "queue 1 of 1, 0 ahead")
	}},
	{"obstacles/host", "the jobs that a host is busy with are told, and when a pause is over", func(w *world) {
		w.st.SetGate("h", store.Gate{Open: true, Most: 1})
		first := w.submit(retries(harp.StateFailed))
		second := w.submit()
		w.wantObstacles(second, "agent_busy 1 of 1, 0 ahead")
		w.apply(second, store.CancelReq)
		w.fails(first)
		w.wantObstacles(first, "backoff since 0s until 1m0s")
		w.away()
		w.wantObstacles(first, "backoff since 0s until 1m0s", "offline since 0s")
	}},
	{"obstacles/last attempt", "an attempt that was given up, and may still run, is in the way of the next", func(w *world) {
		j := w.running(retries(harp.StateLost))
		e := w.event(j, store.Lose)
		e.Reason = harp.LostTooLong
		w.must(w.try(j, e).Err)
		w.wantObstacles(j, "last_attempt since 0s")
	}},
	{"obstacles/batch", "a member waits for its turn, or for its batch", func(w *world) {
		w.gate("a", "b")
		b := w.batch([]string{"a", "b"}, parallel(1))
		w.advance()
		w.wantObstacles(w.members(b)[1], "batch")
	}},
}
