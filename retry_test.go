package harp

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// chainMade is a service that has the request of one batch, and keeps what is submitted.
type chainMade struct {
	Service
	request   Request
	submitted Request
}

func (s *chainMade) JobRequest(context.Context, string) (Submission, error) {
	return Submission{Request: s.request.Encode()}, nil
}

func (s *chainMade) Submit(_ context.Context, calls []Submission) (made []Submitted, err error) {
	s.submitted, err = DecodeRequest(calls[0].Request)
	return []Submitted{{ID: s.submitted.ID}}, err
}

// Options of a retry go over those of each step of a chain; what is not given stays as each step has it.
func TestOptionsOfARetryHoldForTheWholeChain(t *testing.T) {
	type limits struct {
		silence, exec time.Duration
		retry         RetryPolicy
	}
	lost := RetryPolicy{On: []State{StateLost}}
	was := [3]limits{{time.Second, time.Minute, lost}, {2 * time.Second, 2 * time.Minute, RetryPolicy{Attempts: 1}}, {}}
	all := func(change func(l *limits)) [3]limits {
		are := was
		for i := range are {
			change(&are[i])
		}
		return are
	}
	made, err := NewChainRequest("web*", []Step{
		{Procedure: "a", Options: []Option{SilenceTimeout(was[0].silence), MaxExecTime(was[0].exec), Retry(was[0].retry)}},
		{Procedure: "b", Options: []Option{SilenceTimeout(was[1].silence), MaxExecTime(was[1].exec), Retry(was[1].retry)}},
		{Procedure: "c"},
	})
	if err != nil {
		t.Fatal(err)
	}
	twice := RetryPolicy{On: []State{StateFailed}, Attempts: 2}
	for name, test := range map[string]struct {
		opts []Option
		want [3]limits
	}{
		"none":                        {nil, was},
		"of the batch":                {[]Option{Parallel(3), Priority(2)}, was},
		"max exec time":               {[]Option{MaxExecTime(time.Hour)}, all(func(l *limits) { l.exec = time.Hour })},
		"as the first step has it":    {[]Option{MaxExecTime(was[0].exec)}, all(func(l *limits) { l.exec = was[0].exec })},
		"silence timeout":             {[]Option{SilenceTimeout(NoLimit)}, all(func(l *limits) { l.silence = NoLimit })},
		"among others":                {[]Option{Options(CallOptions{SilenceTimeout: time.Hour, Retry: twice})}, all(func(l *limits) { l.silence, l.retry = time.Hour, twice })},
		"retry":                       {[]Option{Retry(twice)}, all(func(l *limits) { l.retry = twice })},
		"retry as the first has it":   {[]Option{Retry(lost)}, all(func(l *limits) { l.retry = lost })},
		"the default retry":           {[]Option{Retry(RetryPolicy{})}, all(func(l *limits) { l.retry = RetryPolicy{} })},
		"by an option of one's own":   {[]Option{func(o *CallOptions) { o.MaxExecTime, o.Retry = time.Hour, twice }}, all(func(l *limits) { l.exec, l.retry = time.Hour, twice })},
		"with nothing in the options": {[]Option{Options(CallOptions{})}, was},
	} {
		s := &chainMade{request: made}
		b := &Batch{service: s, id: made.ID}
		if _, err := b.Retry(t.Context(), nil, test.opts...); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got [3]limits
		for i := range got {
			step, err := s.submitted.AtStep(i + 1)
			if err != nil {
				t.Fatal(err)
			}
			got[i] = limits{step.SilenceTimeout, step.MaxExecTime, step.Retry}
		}
		if fmt.Sprint(got) != fmt.Sprint(test.want) {
			t.Errorf("%s: the steps have %v, want %v", name, got, test.want)
		}
	}
}
