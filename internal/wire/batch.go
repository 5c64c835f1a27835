package wire

import "github.com/harpcaller/harp"

// NewBatchPulled returns the answer that holds as much of a page as it may, at least one entry.
func NewBatchPulled(p harp.BatchPage) BatchPulled {
	entries := make([]BatchEntry, len(p.Entries))
	for i := range p.Entries {
		e := &p.Entries[i]
		entries[i] = BatchEntry{No: e.Seq, Host: e.Host, Job: e.Job, Step: e.Step, End: e.End, Skipped: e.Skipped}
		if e.End == nil {
			record := newPulledRecord(&e.Record)
			entries[i].Record = &record
		}
	}
	m := BatchPulled{Entries: NewRows(entries, MaxRows), Next: p.Next, At: p.At, Ended: p.Ended}
	if n := len(m.Entries); n < len(entries) {
		m.Next, m.At, m.Ended = entries[n].No, p.Entries[n].Record.Seq, false
	}
	return m
}

// Page is the inverse of [NewBatchPulled]. Errors: msgpack.ErrMalformed.
func (m *BatchPulled) Page() (harp.BatchPage, error) {
	rows, err := DecodeRows[BatchEntry](m.Entries)
	if err != nil {
		return harp.BatchPage{}, err
	}
	p := harp.BatchPage{Entries: make([]harp.HostRecord, len(rows)), Next: m.Next, At: m.At, Ended: m.Ended}
	for i, row := range rows {
		e := harp.HostRecord{Seq: row.No, Host: row.Host, Job: row.Job, Step: row.Step, End: row.End, Skipped: row.Skipped}
		if row.Record != nil {
			if e.Record, err = row.Record.Numbered(row.Record.Seq, row.Record.Attempt); err != nil {
				return harp.BatchPage{}, err
			}
			e.Record.Missing = row.Record.Missing
		}
		p.Entries[i] = e
	}
	return p, nil
}
