package harptest_test

import (
	"time"

	"github.com/harpcaller/harp/harptest"
	"github.com/harpcaller/harp/store"
)

// trouble makes a disk full or worse.
func (p *player) trouble(f faultPlan) {
	p.mend(f.Host)
	switch f.Kind {
	case faultLow:
		p.sys.SetSpace(store.SpaceLow)
	case faultCritical:
		p.sys.SetSpace(store.SpaceCritical)
	case faultFull:
		p.sys.FillDisk(f.Host)
	default:
		p.sys.BreakDisk(f.Host)
	}
	p.history.Outages = append(p.history.Outages, outage{kind: f.Kind, host: f.Host, begin: time.Now()})
}

// mend makes the disk of a host, or the dispatcher's, work.
func (p *player) mend(host string) {
	for i := range p.history.Outages {
		if o := &p.history.Outages[i]; o.host == host && o.end.IsZero() {
			o.end = time.Now()
		}
	}
	if host == "" {
		p.sys.SetSpace(store.SpacePlenty)
	} else {
		p.sys.MendDisk(host)
	}
}

// end takes an agent or the dispatcher down.
func (p *player) end(f faultPlan) {
	switch {
	case p.down[f.Host]:
		return
	case f.Host == "" && f.Kind == faultStop && !p.poisoned:
		p.sys.StopDispatcher()
	case f.Host == "":
		p.sys.CrashDispatcher()
	case f.Kind == faultStop:
		begun := time.Now()
		p.sys.StopAgent(f.Host)
		p.history.Stops = append(p.history.Stops, crash{host: f.Host, begun: begun, at: time.Now()})
	default:
		p.history.Crashes = append(p.history.Crashes, crash{host: f.Host, at: time.Now(), wiped: f.Kind == faultWipe})
		if f.Kind == faultWipe {
			p.sys.WipeAgent(f.Host)
		} else {
			p.sys.CrashAgent(f.Host)
		}
	}
	p.down[f.Host] = true
}

// start brings an agent or the dispatcher back if it is down.
func (p *player) start(host string) {
	switch {
	case !p.down[host]:
		return
	case host == "":
		p.sys.StartDispatcher()
		p.poisoned = false
	default:
		p.mend(host)
		p.sys.StartAgent(host)
	}
	p.down[host] = false
}

// heal ends every fault.
func (p *player) heal() {
	p.mend("")
	if p.poisoned {
		p.end(faultPlan{Kind: faultCrash})
	}
	p.start("")
	for _, host := range p.plan.Hosts {
		p.mend(host)
		p.start(host)
		p.sys.Heal(host)
	}
	p.sys.Heal(harptest.CallerName)
	p.sys.WaitOnline(p.plan.Hosts...)
}
