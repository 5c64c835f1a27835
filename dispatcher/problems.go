package dispatcher

import (
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/text"
	"github.com/harpcaller/harp/internal/wire"
)

// duplicateFor is how long a second agent of a host is a problem of it after it was refused: it
// tries again within some seconds.
const duplicateFor = time.Minute

// duplicate is another agent of a host's name that was refused.
type duplicate struct {
	addr string
	at   time.Time // zero: there was none
	told time.Time // in the feed, the last time
}

// setProblems notes what a host's agent says is wrong, as far as it may say.
func (h *host) setProblems(told []harp.HostProblem) {
	kept := slices.Clone(told[:min(len(told), wire.MaxProblems)])
	for i, p := range kept {
		kept[i] = harp.HostProblem{Code: text.Shorten(p.Code, wire.MaxProblemCode, "…"), Text: text.Shorten(p.Text, wire.MaxProblemText, "…")}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.problems = kept
}

// noteDuplicate notes that another agent of the host's name was refused now, and reports whether the feed is to tell: once a
// minute, however often that one tries again.
func (h *host) noteDuplicate(addr string) (isTold bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d, now := &h.duplicate, time.Now()
	d.addr, d.at = addr, now
	if isTold = d.told.IsZero() || now.Sub(d.told) >= duplicateFor; isTold {
		d.told = now
	}
	return isTold
}

// problemsLocked is what is wrong with the host.
func (h *host) problemsLocked() []harp.HostProblem {
	all := slices.Clone(h.problems)
	if d := h.duplicate; !d.at.IsZero() && time.Since(d.at) < duplicateFor {
		all = append(all, harp.HostProblem{Code: harp.ProblemDuplicate, Text: "another agent with this name was refused, at " + d.addr})
	}
	return all
}
