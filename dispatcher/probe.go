package dispatcher

import (
	"context"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/wire"
)

// pingPage is how many hosts are asked at once whether they are there.
const pingPage = 2000

// pendingPing is one that an agent was asked by an empty FORGET. It answers with READY, which it may
// also say by itself: that it is there holds either way.
type pendingPing struct {
	answered chan struct{} // closed when READY has come
	at       time.Time     // when it did
}

// probe waits for one agent to show that it is there.
type probe struct {
	s     *session
	q     *pendingPing
	asked time.Time
}

// startProbe asks the agent whether it is there; while it owes an answer it is not asked again, and
// that answer counts. It returns nil if the session ends.
func (s *session) startProbe() *probe {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return nil
	}
	p := &probe{s: s, q: s.ping, asked: time.Now()}
	if p.q == nil {
		p.q = &pendingPing{answered: make(chan struct{})}
		s.ping = p.q
		s.attempts.Go(func() { // who is not there may not take the frame either
			_ = s.control.Send(wire.TypeForget, false, wire.Encode(wire.Forget{Last: true}))
		})
	}
	return p
}

// noteReady tells those that wait that the agent has answered.
func (s *session) noteReady() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ping == nil {
		return
	}
	s.ping.at = time.Now()
	close(s.ping.answered)
	s.ping = nil
}

// await waits for the agent until ctx ends, and returns how long it took to answer. An answer that has come counts
// though ctx has ended, as the agents that were waited for before may have been silent.
func (p *probe) await(ctx context.Context) (took time.Duration, alive bool) {
	select {
	case <-p.q.answered:
	case <-p.s.tr.Done():
	case <-ctx.Done():
	}
	select {
	case <-p.q.answered:
		return p.q.at.Sub(p.asked), true
	case <-p.s.tr.Done():
		return 0, false
	default:
		heard := p.s.tr.Heard() // its answer may wait while another frame of it waits for the disk
		return max(heard.Sub(p.asked), 0), heard.After(p.asked)
	}
}

// probeAgent asks the agent whether it is there, and waits for its answer.
func (s *session) probeAgent(ctx context.Context) bool {
	p := s.startProbe()
	if p == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	_, alive := p.await(ctx)
	return alive
}

// pingHosts asks the agents of hosts whether they are there, all at once. Errors: context.Cause.
func pingHosts(ctx context.Context, hosts []*host) ([]harp.HostPing, error) {
	waiting, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	probes := make([]*probe, len(hosts))
	for i, h := range hosts {
		if s := h.currentSession(); s != nil {
			probes[i] = s.startProbe()
		}
	}
	pings := make([]harp.HostPing, len(hosts))
	for i, h := range hosts {
		ping := harp.HostPing{Host: h.name, Online: probes[i] != nil}
		if ping.Online {
			ping.Took, ping.Answered = probes[i].await(waiting)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		ping.LastHeard = h.status().LastHeard
		pings[i] = ping
	}
	return pings, nil
}

// heardLately is how long ago an agent was heard that need not be asked whether it is there.
const heardLately = 5 * time.Second

// findSilent asks those hosts of a batch that were not heard lately whether they are there, and returns those that
// do not answer. That takes a while: only looking for them is the principal's turn. Errors: context.Cause;
// what is wrong with the batch is said when it is admitted.
func (d *Dispatcher) findSilent(ctx context.Context, req harp.Request, listed []byte, who harp.Principal, weight int) (map[string]bool, error) {
	if _, err := d.store.Batch(ctx, req.ID); err == nil {
		return nil, nil // it is stored already
	}
	quiet, err := d.findQuiet(ctx, req, listed, who, weight)
	if err != nil || len(quiet) == 0 {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(d.ctx, func() { cancel(harp.ErrClosed) })()
	pings, err := pingHosts(ctx, quiet)
	silent := map[string]bool{}
	for _, p := range pings {
		if !p.Answered {
			silent[p.Host] = true
		}
	}
	return silent, err
}

// findQuiet returns those hosts of a batch that were not heard lately; none where there are more than it may
// have.
func (d *Dispatcher) findQuiet(ctx context.Context, req harp.Request, listed []byte, who harp.Principal, weight int) (quiet []*host, err error) {
	if err := d.turns.awaitTurn(ctx, who, weight); err != nil {
		return nil, err
	}
	defer d.turns.leaveTurn(who, weight)
	hosts, _, err := d.selectBatchHosts(ctx, req, listed)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil || len(hosts) > d.cfg.Limits.BatchHosts:
		return nil, nil // that is said when it is admitted
	}
	for _, h := range hosts {
		if s := h.currentSession(); s == nil || time.Since(s.tr.Heard()) > heardLately {
			quiet = append(quiet, h)
		}
	}
	return quiet, nil
}

// PingHosts implements harp.HostService.
func (s *service) PingHosts(ctx context.Context, text, cursor string) (harp.Page[harp.HostPing], error) {
	type page = harp.Page[harp.HostPing]
	return request(s, ctx, func(ctx context.Context) (out page, err error) {
		var hosts []*host
		if hosts, out.Cursor, err = s.selectPage(ctx, text, cursor, pingPage); err != nil {
			return page{}, err
		}
		if out.Items, err = pingHosts(ctx, hosts); err != nil {
			return page{}, err
		}
		return out, nil
	})
}
