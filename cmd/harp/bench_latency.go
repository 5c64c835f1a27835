package main

import (
	"math"
	"time"
)

// latencies counts how long things took, in steps of one percent: a run may go on for
// days.
type latencies struct {
	steps [latencySteps]uint64
	n     uint64
	most  time.Duration
}

const (
	latencyStep  = 1.01
	latencySteps = 2600 // up to two days
)

// stepOf is the step that a time is counted in; the first is up to a microsecond.
func stepOf(d time.Duration) int {
	micros := float64(d) / float64(time.Microsecond)
	if micros <= 1 {
		return 0
	}
	return min(int(math.Ceil(math.Log(micros)/math.Log(latencyStep))), latencySteps-1)
}

// endOf is the longest time of a step.
func endOf(step int) time.Duration {
	return time.Duration(math.Pow(latencyStep, float64(step)) * float64(time.Microsecond))
}

func (l *latencies) addLatency(d time.Duration) {
	l.steps[stepOf(d)]++
	l.n++
	l.most = max(l.most, d)
}

// quantile is the time within which so large a part of them ended, and no more than one
// percent above it; 0 if there are none.
func (l *latencies) quantile(q float64) time.Duration {
	rank := uint64(math.Ceil(q * float64(l.n)))
	seen := uint64(0)
	for step, n := range l.steps {
		if seen += n; n > 0 && seen >= rank {
			return min(endOf(step), l.most)
		}
	}
	return l.most
}

// bar is how many took up to a time, and longer than the bar before.
type bar struct {
	upTo time.Duration
	n    uint64
}

// bars are at 1, 2 and 5 of each power of ten, from the first to the last in which
// there are any.
func (l *latencies) bars() (all []bar) {
	step := 0
	for upTo := range barEnds {
		b := bar{upTo: upTo}
		for ; step < latencySteps && (endOf(step) <= upTo || step == stepOf(upTo)); step++ {
			b.n += l.steps[step]
		}
		if b.n > 0 || len(all) > 0 {
			all = append(all, b)
		}
		if step > stepOf(l.most) {
			return all
		}
	}
	return all
}

// barEnds yields 10 microseconds, 20, 50, and so on.
func barEnds(yield func(time.Duration) bool) {
	for decade := 10 * time.Microsecond; decade < 100*24*time.Hour; decade *= 10 {
		for _, times := range []time.Duration{1, 2, 5} {
			if !yield(times * decade) {
				return
			}
		}
	}
}
