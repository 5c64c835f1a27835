package store

import (
	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/window"
)

// MaxObstacles is how many windows and pauses in the way of one start are told of.
const MaxObstacles = 100

// ObstaclesOf returns the windows and pauses that keep a start back, MaxObstacles at most, as callers know them.
func ObstaclesOf(v window.Verdict) (all []harp.Obstacle) {
	for _, o := range v.Obstacles[:min(len(v.Obstacles), MaxObstacles)] {
		told := harp.Obstacle{Reason: harp.ReasonWindow, Window: o.Window, Only: o.Only, Since: o.Since, Until: o.Until, Why: o.Note}
		if p := o.Pause; p != nil {
			told.By, told.Why = harp.Principal{Kind: p.Kind, Name: p.By}, p.Reason
		}
		all = append(all, told)
	}
	return all
}
