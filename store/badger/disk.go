package badger

import "github.com/harpcaller/harp/store/internal/rows"

// Space implements rows.Engine. It asks the operating system each time, which
// costs about a microsecond and is done once a group.
func (e *engine) Space() rows.Space {
	free, total, err := e.opts.Disk(e.dir)
	if err != nil {
		e.diskUnknown.Do(func() { e.opts.Logger.Error("free space on disk is not known", "dir", e.dir, "err", err) })
		return rows.SpacePlenty
	}
	low, critical := e.opts.lines(total)
	switch {
	case free < critical:
		return rows.SpaceCritical
	case free < low:
		return rows.SpaceLow
	}
	return rows.SpacePlenty
}

// lines are how many free bytes are low and how many are critical.
func (o *Options) lines(total uint64) (low, critical uint64) {
	low, critical = o.LowSpace, o.CriticalSpace
	if low == 0 {
		low = min(max(total/20, 256<<20), 5<<30)
	}
	if critical == 0 {
		critical = low / 4
	}
	return low, critical
}
