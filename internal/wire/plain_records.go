package wire

import (
	"unicode/utf8"

	"github.com/harpcaller/harp/internal/pack"
)

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
		if m.Kind != "" {
			r.Fail() // twice: nobody has looked at the first
			return
		}
		m.Kind = kindOf(r.Text())
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

// kindOf is string(kind), but the usual ones need no memory.
func kindOf(kind []byte) string {
	for _, k := range [...]string{"stdout", "stderr", "log"} {
		if string(kind) == k {
			return k
		}
	}
	return string(kind)
}

func (m Record) encodePlain() []byte {
	return m.append(make([]byte, 0, recordSlack+len(m.Kind)+len(m.Value)))
}

func (m *Record) decodePlain(r pack.Reader) bool {
	got := *m
	got.read(&r)
	return take(&r, m, got)
}

func (m Pulled) encodePlain() []byte {
	const head = 5 // of a row, at most
	size := slack
	for _, row := range m.Records {
		size += head + len(row)
	}
	w := pack.Begin(make([]byte, 0, size))
	if len(m.Records) > 0 {
		w.Key("records")
		w.B = pack.AppendArray(w.B, len(m.Records))
		for _, row := range m.Records {
			w.B = pack.AppendBytes(w.B, row)
		}
	}
	w.Int("next", m.Next)
	w.Int("end", m.End)
	w.BoolOpt("ended", m.Ended)
	return w.End()
}

// decodePlain leaves the rows where they are, in what is read.
func (m *Pulled) decodePlain(r pack.Reader) bool {
	got := *m
	for range r.Map() {
		switch string(r.Text()) {
		case "records":
			got.readRows(&r)
		case "next":
			got.Next = r.Int()
		case "end":
			got.End = r.Int()
		case "ended":
			got.Ended = r.Bool()
		default:
			r.Fail()
		}
	}
	return take(&r, m, got)
}

func (m *Pulled) readRows(r *pack.Reader) {
	if m.Records != nil {
		r.Fail()
		return
	}
	m.Records = make(Rows, r.Array())
	for i := range m.Records {
		m.Records[i] = r.Bytes()
	}
}

// A PulledRecord has keys of its own before those of the record.

func (m PulledRecord) encodePlain() []byte {
	return m.Append(make([]byte, 0, RecordRoom+len(m.Kind)+len(m.Value)))
}

// RecordRoom is room for what a PulledRecord holds beside its kind and value.
const RecordRoom = recordSlack + 40

// Append is the function Encode, behind what is in b.
func (m *PulledRecord) Append(b []byte) []byte {
	w := pack.Begin(b)
	w.Int("seq", m.Seq)
	w.Int("attempt", m.Attempt)
	w.IntOpt("missing", m.Missing)
	m.write(&w)
	return w.End()
}

func (m *PulledRecord) decodePlain(r pack.Reader) bool {
	got := *m
	got.read(&r)
	return take(&r, m, got)
}

func (m *PulledRecord) read(r *pack.Reader) {
	for range r.Map() {
		switch key := r.Text(); string(key) {
		case "seq":
			m.Seq = r.Int()
		case "attempt":
			m.Attempt = r.Int()
		case "missing":
			m.Missing = r.Int()
		default:
			m.readKey(r, key)
		}
	}
}

// DecodeRow is the function DecodeRow, for who has many to read: the value is a part of
// the row. What can be read here is valid, but for texts.
func (m *PulledRecord) DecodeRow(row []byte) error {
	r := pack.NewKeeper(row)
	*m = PulledRecord{}
	if m.read(&r); r.Done() && utf8.ValidString(m.Kind) {
		return nil
	}
	*m = PulledRecord{}
	return DecodeRow(row, m)
}

func (m *Records) decodePlain(r pack.Reader) bool {
	got := *m
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
	return m.appendPlain(make([]byte, 0, slack+len(m.Value)+len(m.Failure)))
}

// appendPlain is encodePlain behind what is in b.
func (m *End) appendPlain(b []byte) []byte {
	if m.Stopped != nil {
		return nil
	}
	w := pack.Begin(b)
	w.BytesOpt("value", m.Value)
	w.BytesOpt("failure", m.Failure)
	w.Int("records", m.Records)
	w.Int("ran", m.RanFor)
	w.BoolOpt("dropped", m.Dropped)
	m.Started.writeOpt(&w)
	w.BoolOpt("gone", m.Gone)
	return w.End()
}

// Append appends what Encode returns of an end to b.
func (m *End) Append(b []byte) []byte {
	if plain := m.appendPlain(b); plain != nil {
		return plain
	}
	return append(b, Encode(*m)...)
}

// DecodeBody is the function DecodeBody, for who has an end at hand, which keeps parts of
// the body.
func (m *End) DecodeBody(b []byte) error {
	if m.decodePlain(pack.NewKeeper(b)) {
		return nil
	}
	return decodeOther(b, m)
}

func (m *End) decodePlain(r pack.Reader) bool {
	got := *m
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
