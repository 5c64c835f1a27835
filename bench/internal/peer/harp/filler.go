package harp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/bench/internal/lab"
	"github.com/harpcaller/harp/bench/internal/measure"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/badger"
)

// FillerRole stores jobs that have ended, and then waits to be killed.
const FillerRole = "harp-filler"

type fillerArg struct {
	Dir  string `json:"dir"`
	From int    `json:"from"`
	To   int    `json:"to"`
}

// RunFiller is the Role of that name.
func RunFiller(ctx context.Context, _ *lab.Lab, raw json.RawMessage, ready func(any) error) error {
	var arg fillerArg
	if err := json.Unmarshal(raw, &arg); err != nil {
		return err
	}
	st, err := badger.Open(arg.Dir, &badger.Options{Logger: quiet()})
	if err != nil {
		return err
	}
	defer st.Close()
	for i := range hosts {
		st.SetGate(host(i), store.Gate{Open: true, Most: 1 << 20})
	}
	if err := fillAndSettle(ctx, st, arg.From, arg.To); err != nil {
		return err
	}
	if err := ready(nil); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

const (
	hosts  = 100
	filled = 500 // jobs in a commit
)

// fillers is how many store jobs at a time.
const fillers = 4

// unsettled are the jobs that are stored last.
const unsettled = 2000

// fillAndSettle stores jobs and lets the store do all but the last of what it would have
// done meanwhile, had they come one by one: what it puts off is not to be measured.
func fillAndSettle(ctx context.Context, st store.Store, from, to int) error {
	if settled := to - unsettled; settled > from {
		if err := fillTo(ctx, st, from, settled); err != nil {
			return err
		}
		if err := st.Compact(ctx); err != nil {
			return err
		}
		from = settled
	}
	return fillTo(ctx, st, from, to)
}

func fillTo(ctx context.Context, st store.Store, from, to int) error {
	var next atomic.Int64
	next.Store(int64(from))
	errs := make([]error, fillers)
	var wg sync.WaitGroup
	for i := range fillers {
		wg.Go(func() {
			for errs[i] == nil {
				n := int(next.Add(filled)) - filled
				if n >= to {
					return
				}
				errs[i] = storeSome(ctx, st, n, min(filled, to-n))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func procedure(i int) string { return fmt.Sprintf("bench.p%d", i%10) }

// storeSome stores jobs and their ends; one in ten has failed.
func storeSome(ctx context.Context, st store.Store, first, n int) error {
	now := time.Now()
	args, err := harp.NewValue(echo{measure.Payload})
	if err != nil {
		return err
	}
	jobs := make([]store.Submission, n)
	for i := range jobs {
		k := first + i
		r := harp.Request{
			ID: harp.NewID(), Host: host(k % hosts), Procedure: procedure(k / hosts), Args: args,
			Labels: map[string]string{"rack": fmt.Sprintf("r%d", k%7)},
		}
		jobs[i] = store.Submission{
			Job: store.Job{
				ID: r.ID, Host: r.Host, Procedure: r.Procedure, OfflineWait: harp.NoLimit,
				SubmitTime: now, Labels: r.Labels,
			},
			Request: harp.Submission{Request: r.Encode()},
		}
	}
	submitted, err := st.Submit(ctx, jobs, now)
	if err != nil {
		return err
	}
	ends := make([]store.Transition, n)
	for i, s := range submitted {
		if s.Err != nil {
			return s.Err
		}
		e := store.Event{Kind: store.End, At: now, Attempt: s.Job.Attempt, Fence: s.Job.Fence, Value: harp.Value{0xc3}}
		if i%10 == 0 {
			e.Failure, e.Value = harp.Failure{Code: "remote", Message: "it did not work"}, nil
		}
		ends[i] = store.Transition{ID: s.Job.ID, Event: e}
	}
	changes, err := st.Apply(ctx, ends...)
	for _, c := range changes {
		err = errors.Join(err, c.Err)
	}
	return err
}
