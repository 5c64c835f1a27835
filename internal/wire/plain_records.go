package wire

import "github.com/harpcaller/harp/internal/pack"

func (m Records) encodePlain() []byte {
	if m.Records == nil {
		return nil
	}
	size := slack
	for _, rec := range m.Records {
		size += recordSlack + len(rec.Kind) + len(rec.Value)
	}
	w := pack.Begin(make([]byte, 0, size))
	w.Int("first", m.First)
	w.Key("records")
	w.B = pack.AppendArray(w.B, len(m.Records))
	for i := range m.Records {
		w.B = m.Records[i].append(w.B)
	}
	return w.End()
}

// recordSlack is room for what a record holds beside its kind and value.
const recordSlack = 36

func (m *Record) append(b []byte) []byte {
	w := pack.Begin(b)
	m.write(&w)
	return w.End()
}

func (m *Record) write(w *pack.Message) {
	w.Int("t", m.Time)
	w.TextOpt("k", m.Kind)
	w.BytesOpt("v", m.Value)
	w.BoolOpt("p", m.Partial)
	w.IntOpt("x", m.Truncated)
}

func (m *Record) read(r *pack.Reader) {
	for range r.Map() {
		m.readKey(r, r.Text())
	}
}

func (m *Record) readKey(r *pack.Reader, key []byte) {
	switch string(key) {
	case "t":
		m.Time = r.Int()
	case "k":
		m.Kind = string(r.Text())
	case "v":
		setBytes(r, &m.Value)
	case "p":
		m.Partial = r.Bool()
	case "x":
		m.Truncated = r.Int()
	default:
		r.Fail()
	}
}

func (m Record) encodePlain() []byte {
	return m.append(make([]byte, 0, recordSlack+len(m.Kind)+len(m.Value)))
}

func (m *Record) decodePlain(b []byte) bool {
	r, got := pack.NewReader(b), *m
	got.read(&r)
	return take(&r, m, got)
}

// A PulledRecord has keys of its own before those of the record.

func (m PulledRecord) encodePlain() []byte {
	w := pack.Begin(make([]byte, 0, slack+len(m.Kind)+len(m.Value)))
	w.Int("seq", m.Seq)
	w.Int("attempt", m.Attempt)
	m.write(&w)
	return w.End()
}

func (m *PulledRecord) decodePlain(b []byte) bool {
	r, got := pack.NewReader(b), *m
	for range r.Map() {
		switch key := r.Text(); string(key) {
		case "seq":
			got.Seq = r.Int()
		case "attempt":
			got.Attempt = r.Int()
		default:
			got.readKey(&r, key)
		}
	}
	return take(&r, m, got)
}

func (m *Records) decodePlain(b []byte) bool {
	r, got := pack.NewReader(b), *m
	for range r.Map() {
		switch string(r.Text()) {
		case "first":
			got.First = r.Int()
		case "records":
			got.readRecords(&r)
		default:
			r.Fail()
		}
	}
	return take(&r, m, got)
}

func (m *Records) readRecords(r *pack.Reader) {
	if m.Records != nil {
		r.Fail()
		return
	}
	m.Records = make([]Record, r.Array())
	for i := range m.Records {
		m.Records[i].read(r)
	}
}

func (m End) encodePlain() []byte {
	if m.Stopped != nil {
		return nil
	}
	w := pack.Begin(make([]byte, 0, slack+len(m.Value)+len(m.Failure)))
	w.BytesOpt("value", m.Value)
	w.BytesOpt("failure", m.Failure)
	w.Int("records", m.Records)
	w.Int("ran", m.RanFor)
	w.BoolOpt("dropped", m.Dropped)
	m.Started.writeOpt(&w)
	w.BoolOpt("gone", m.Gone)
	return w.End()
}

func (m *End) decodePlain(b []byte) bool {
	r, got := pack.NewReader(b), *m
	for range r.Map() {
		switch string(r.Text()) {
		case "value":
			setBytes(&r, &got.Value)
		case "failure":
			setBytes(&r, &got.Failure)
		case "records":
			got.Records = r.Int()
		case "ran":
			got.RanFor = r.Int()
		case "dropped":
			got.Dropped = r.Bool()
		case "started":
			readStarted(&r, &got.Started)
		case "gone":
			got.Gone = r.Bool()
		default:
			r.Fail()
		}
	}
	return take(&r, m, got)
}
