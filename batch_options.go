package harp

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// NeedBatch is what the request of a batch needs: an agent that takes the job's id and the host from
// CALL, as the request is that of all members.
const NeedBatch = "batch"

// SkipHost is given to [WhenOffline], [WhenUnfit] or [WhenHeld]: hosts that are so when their turn comes are left
// out of a batch. Their members are counted apart, as skipped, and do not fail it.
const SkipHost = "skip"

// UnfitPolicy says what becomes of a batch that has hosts which cannot run its call.
type UnfitPolicy string

// RefuseUnfit refuses the whole batch if one of its hosts is unfit.
const RefuseUnfit UnfitPolicy = ""

// HeldPolicy says what becomes of the hosts of a batch that a maintenance window or a pause keeps back when their
// turn comes.
type HeldPolicy string

// WaitForHeld has them wait for its end.
const WaitForHeld HeldPolicy = ""

// StopPolicy says what becomes of a batch of which too many members failed: see [StopAfter].
type StopPolicy string

// The policies.
const (
	PauseBatch  StopPolicy = "pause"  // pause it, until somebody resumes or cancels it
	CancelBatch StopPolicy = "cancel" // cancel it
)

// BatchOptions are the options that a batch has beside those of its calls. A zero field means: the
// default. Some are a number of hosts, or a percentage of them with a %, which is rounded up.
type BatchOptions struct {
	Parallel     int           `json:"parallel,omitempty" msgpack:"parallel,omitempty"` // members that are under way at a time; default 1,000, or the dispatcher's limits.batch_parallel
	Rolling      []string      `json:"rolling,omitempty" msgpack:"rolling,omitempty"`   // how many hosts have been reached when each wave is over
	WavePause    time.Duration `json:"wave_pause,omitempty" msgpack:"wavepause,omitempty"`
	Approve      bool          `json:"approve,omitempty" msgpack:"approve,omitempty"`
	ApproveFirst bool          `json:"approve_first,omitempty" msgpack:"approvefirst,omitempty"`
	Subset       string        `json:"subset,omitempty" msgpack:"subset,omitempty"` // how many hosts there are of those selected
	Shuffle      bool          `json:"shuffle,omitempty" msgpack:"shuffle,omitempty"`
	Rate         int           `json:"rate,omitempty" msgpack:"rate,omitempty"` // hosts that are reached within RatePer, at most
	RatePer      time.Duration `json:"rate_per,omitempty" msgpack:"rateper,omitempty"`
	StopAfter    string        `json:"stop_after,omitempty" msgpack:"stopafter,omitempty"` // how many members may fail before it stops
	OnStop       StopPolicy    `json:"on_stop,omitempty" msgpack:"onstop,omitempty"`
	MaxHosts     int           `json:"max_hosts,omitempty" msgpack:"maxhosts,omitempty"`
	Confirmed    string        `json:"confirmed,omitempty" msgpack:"confirmed,omitempty"` // the Digest of a Preview
	Probe        bool          `json:"probe,omitempty" msgpack:"probe,omitempty"`         // hosts are asked whether they are there
	WhenUnfit    UnfitPolicy   `json:"when_unfit,omitempty" msgpack:"whenunfit,omitempty"`
	WhenHeld     HeldPolicy    `json:"when_held,omitempty" msgpack:"whenheld,omitempty"`
	QueuePerHost bool          `json:"queue_per_host,omitempty" msgpack:"queueper,omitempty"`
	Drift        string        `json:"drift,omitempty" msgpack:"drift,omitempty"` // the name under which each member marks its host; "": under none
	Retry        []string      `json:"retry,omitempty" msgpack:"retry,omitempty"` // which members of Request.RetryOf it has: [Batch.Retry]
	Then         []ChainStep   `json:"then,omitempty" msgpack:"then,omitempty"`   // the steps behind the first: [Target.Chain]
	RebootWait   time.Duration `json:"reboot_wait,omitempty" msgpack:"rebootwait,omitempty"`
	EachStep     bool          `json:"each_step,omitempty" msgpack:"eachstep,omitempty"` // windows keep back each step of a chain
}

// batchSettings remembers what was given, as settings does.
type batchSettings struct{ parallel, rolling, wavePause, subset, rate, stopAfter, maxHosts, confirmed, drift, rebootWait bool }

// Parallel is how many members of a batch are under way at a time, at most. One whose host is away
// does not count. Default, and most: 1,000, or the dispatcher's limits.batch_parallel.
func Parallel(n int) Option {
	return func(o *CallOptions) { o.Batch.Parallel, o.set.batch.parallel = n, true }
}

// Rolling lets a batch go through its hosts in waves: each begins when the one before is over. Each
// wave is how many hosts have been reached when it is over, "5", or "10%" of all hosts, rounded up;
// the last one is always the rest: Rolling("1", "10%").
func Rolling(waves ...string) Option {
	waves = slices.Clone(waves)
	return func(o *CallOptions) { o.Batch.Rolling, o.set.batch.rolling = waves, true }
}

// WavePause is the pause between two waves: see [Rolling].
func WavePause(d time.Duration) Option {
	return func(o *CallOptions) { o.Batch.WavePause, o.set.batch.wavePause = d, true }
}

// Approve pauses a batch after each wave but the last, until somebody resumes it: see [Rolling]. There is no [WavePause] then.
func Approve() Option { return func(o *CallOptions) { o.Batch.Approve = true } }

// ApproveFirst pauses a batch as it is submitted, its hosts being fixed: the first is reached when somebody
// resumes it, with [Batch.Resume]. One that is cancelled instead ends as cancelled(not_approved), and one that nobody
// has resumed within the dispatcher's limits.batch_pause as cancelled(approval); nothing of it has started.
// [Approve] is about what follows.
func ApproveFirst() Option { return func(o *CallOptions) { o.Batch.ApproveFirst = true } }

// Subset makes a batch of so many of the hosts, "10" or "10%", chosen at random.
func Subset(share string) Option {
	return func(o *CallOptions) { o.Batch.Subset, o.set.batch.subset = share, true }
}

// Shuffle lets a batch reach its hosts in a random order rather than by name.
func Shuffle() Option { return func(o *CallOptions) { o.Batch.Shuffle = true } }

// Rate lets a batch reach at most n hosts within a time, which begins with the first of them; the next one that is
// reached after it begins another.
func Rate(n int, per time.Duration) Option {
	return func(o *CallOptions) { o.Batch.Rate, o.Batch.RatePer, o.set.batch.rate = n, per, true }
}

// StopAfter stops a batch as soon as so many of its members have failed, "5", or "5%" of all its
// hosts, rounded up: failed, timed_out, lost, rejected and expired count, of all waves together.
// Nothing of it is started from the commit on in which that many have ended. See [OnStop].
func StopAfter(share string) Option {
	return func(o *CallOptions) { o.Batch.StopAfter, o.set.batch.stopAfter = share, true }
}

// OnStop says what StopAfter does: PauseBatch, the default, or CancelBatch, the default of schedules.
func OnStop(p StopPolicy) Option { return func(o *CallOptions) { o.Batch.OnStop = p } }

// MaxHosts refuses the batch, ErrRefused, if its target selects more hosts.
func MaxHosts(n int) Option {
	return func(o *CallOptions) { o.Batch.MaxHosts, o.set.batch.maxHosts = n, true }
}

// Confirmed refuses the batch, ErrConflict, if it is another than that of the [Preview] with this Digest: if its
// target selects other hosts now, or if what is called differs, the arguments, the queue, the subset or whether it is
// a dry run. What says when, and how fast, may differ.
func Confirmed(digest string) Option {
	return func(o *CallOptions) { o.Batch.Confirmed, o.set.batch.confirmed = digest, true }
}

// Probe has the hosts asked whether they are there, all at once, before it is fixed which hosts the batch has: but
// for those that were heard in the last 5 seconds. One that does not answer within 3 seconds counts as away.
// A preview asks them, too.
func Probe() Option { return func(o *CallOptions) { o.Batch.Probe = true } }

// WhenUnfit says what to do when a host of a batch lacks the procedure, or has one that the
// arguments do not fit: RefuseUnfit, the default, or [SkipHost].
func WhenUnfit(p UnfitPolicy) Option { return func(o *CallOptions) { o.Batch.WhenUnfit = p } }

// WhenHeld says what to do with a host that a maintenance window of the mode WindowHold or a pause keeps back when its turn comes:
// WaitForHeld, the default, or [SkipHost]. One that a window refuses is left out in any case.
func WhenHeld(p HeldPolicy) Option { return func(o *CallOptions) { o.Batch.WhenHeld = p } }

// QueuePerHost adds the host, under the key "host", to the name of the queue of each member of a
// batch: each host then has a queue of its own. It needs [Queue].
func QueuePerHost() Option { return func(o *CallOptions) { o.Batch.QueuePerHost = true } }

// ShareOf returns how many of so many hosts a share is, as options of batches have it: a number
// such as "5", or a percentage such as "10%", rounded up. Errors: ErrInvalid (share) unless it is a
// number above zero, or a percentage from 1% to 100%.
func ShareOf(share string, hosts int) (int, error) {
	digits, percent := strings.CutSuffix(share, "%")
	n, err := strconv.Atoi(digits)
	switch {
	case err != nil || n < 1 || digits[0] == '+':
		return 0, &FieldError{Field: "share", Message: fmt.Sprintf("%q must be a number above zero such as 5, or a percentage such as 10%%", share)}
	case percent && n > 100:
		return 0, &FieldError{Field: "share", Message: fmt.Sprintf("%s is more than 100%%", share)}
	case percent:
		return (hosts*n + 99) / 100, nil
	default:
		return n, nil
	}
}

// Waves returns how many of so many hosts have been reached when each wave of [Rolling] is over,
// ascending; the last is all of them. Of a batch that is made again, of fewer hosts than the waves were for,
// those that do not rise are left out. Errors: ErrInvalid (rolling) for waves that do not rise.
func (o *BatchOptions) Waves(hosts int) ([]int, error) {
	var waves []int
	last := 0
	for _, wave := range o.Rolling {
		n, err := ShareOf(wave, hosts)
		if err != nil {
			return nil, inField("rolling", err)
		}
		if n < last && len(o.Retry) > 0 {
			continue
		}
		if n < last {
			return nil, &FieldError{Field: "rolling", Message: fmt.Sprintf("the waves %s do not rise: of %d hosts %s are %d, after %d", strings.Join(o.Rolling, ","), hosts, wave, n, last)}
		}
		if last = n; n < hosts && (len(waves) == 0 || n > waves[len(waves)-1]) {
			waves = append(waves, n)
		}
	}
	return append(waves, hosts), nil
}

// batchOption returns the name of an option of batches that was given; "" if none was.
func (o *CallOptions) batchOption() string {
	b, set := &o.Batch, &o.set.batch
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"parallel", set.parallel || b.Parallel != 0},
		{"rolling", set.rolling || len(b.Rolling) > 0},
		{"wave_pause", set.wavePause || b.WavePause != 0},
		{"approve", b.Approve},
		{"approve_first", b.ApproveFirst},
		{"subset", set.subset || b.Subset != ""},
		{"shuffle", b.Shuffle},
		{"rate", set.rate || b.Rate != 0 || b.RatePer != 0},
		{"stop_after", set.stopAfter || b.StopAfter != ""},
		{"on_stop", b.OnStop != ""},
		{"max_hosts", set.maxHosts || b.MaxHosts != 0},
		{"confirmed", set.confirmed || b.Confirmed != ""},
		{"probe", b.Probe},
		{"when_unfit", b.WhenUnfit != ""},
		{"when_held", b.WhenHeld != ""},
		{"queue_per_host", b.QueuePerHost},
		{"drift", set.drift || b.Drift != ""},
		{"retry", len(b.Retry) > 0},
		{"steps", len(b.Then) > 0},
		{"reboot_wait", set.rebootWait || b.RebootWait != 0},
		{"each_step", b.EachStep},
		{"when_offline", o.WhenOffline == SkipHost},
	} {
		if f.given {
			return f.name
		}
	}
	return ""
}

// merge sets every field of given that is not zero.
func (o *BatchOptions) merge(given BatchOptions) {
	setIf(&o.Parallel, given.Parallel, given.Parallel != 0)
	setIf(&o.Rolling, slices.Clone(given.Rolling), len(given.Rolling) > 0)
	setIf(&o.WavePause, given.WavePause, given.WavePause != 0)
	setIf(&o.Approve, true, given.Approve)
	setIf(&o.ApproveFirst, true, given.ApproveFirst)
	setIf(&o.Subset, given.Subset, given.Subset != "")
	setIf(&o.Shuffle, true, given.Shuffle)
	setIf(&o.Rate, given.Rate, given.Rate != 0)
	setIf(&o.RatePer, given.RatePer, given.RatePer != 0)
	setIf(&o.StopAfter, given.StopAfter, given.StopAfter != "")
	setIf(&o.OnStop, given.OnStop, given.OnStop != "")
	setIf(&o.MaxHosts, given.MaxHosts, given.MaxHosts != 0)
	setIf(&o.Confirmed, given.Confirmed, given.Confirmed != "")
	setIf(&o.Probe, true, given.Probe)
	setIf(&o.WhenUnfit, given.WhenUnfit, given.WhenUnfit != "")
	setIf(&o.WhenHeld, given.WhenHeld, given.WhenHeld != "")
	setIf(&o.QueuePerHost, true, given.QueuePerHost)
	setIf(&o.Drift, given.Drift, given.Drift != "")
	setIf(&o.Retry, slices.Clone(given.Retry), len(given.Retry) > 0)
	setIf(&o.Then, slices.Clone(given.Then), len(given.Then) > 0)
	setIf(&o.RebootWait, given.RebootWait, given.RebootWait != 0)
	setIf(&o.EachStep, true, given.EachStep)
}

// checkGiven refuses a given zero, which is the default's mark.
func (o *BatchOptions) checkGiven(set *batchSettings) error {
	for _, f := range []struct {
		field string
		wrong bool
	}{
		{"parallel", set.parallel && o.Parallel == 0},
		{"rolling", set.rolling && len(o.Rolling) == 0},
		{"wave_pause", set.wavePause && o.WavePause == 0},
		{"subset", set.subset && o.Subset == ""},
		{"rate", set.rate && o.Rate == 0},
		{"stop_after", set.stopAfter && o.StopAfter == ""},
		{"max_hosts", set.maxHosts && o.MaxHosts == 0},
		{"confirmed", set.confirmed && o.Confirmed == ""},
		{"drift", set.drift && o.Drift == ""},
		{"reboot_wait", set.rebootWait && o.RebootWait == 0},
	} {
		if f.wrong {
			return &FieldError{Field: f.field, Message: "must not be empty or zero"}
		}
	}
	return o.checkEnds()
}

// checkEnds refuses NoLimit where it would have a batch wait for ever.
func (o *BatchOptions) checkEnds() error {
	switch {
	case o.WavePause == NoLimit:
		return errEndless("wave_pause")
	case o.RatePer == NoLimit:
		return errEndless("rate_per")
	}
	return nil
}

// check returns ErrInvalid, naming the field, for options that cannot be, however many hosts there
// are.
func (o *BatchOptions) check() error {
	const someHosts = 1
	for _, share := range []struct{ field, value string }{{"subset", o.Subset}, {"stop_after", o.StopAfter}} {
		if share.value == "" {
			continue
		}
		if _, err := ShareOf(share.value, someHosts); err != nil {
			return inField(share.field, err)
		}
	}
	if err := o.checkWaves(); err != nil {
		return err
	}
	for _, n := range []struct {
		field string
		value int64
	}{{"parallel", int64(o.Parallel)}, {"wave_pause", int64(o.WavePause)}, {"rate", int64(min(o.Rate, int(o.RatePer)))}, {"max_hosts", int64(o.MaxHosts)}} {
		if n.value < 0 {
			return &FieldError{Field: n.field, Message: "must be more than zero"}
		}
	}
	switch {
	case (o.Rate == 0) != (o.RatePer == 0):
		return &FieldError{Field: "rate", Message: "must be a number of hosts within a time"}
	case o.OnStop != "" && o.OnStop != PauseBatch && o.OnStop != CancelBatch:
		return &FieldError{Field: "on_stop", Message: fmt.Sprintf("must be %q or %q", PauseBatch, CancelBatch)}
	case o.WhenUnfit != RefuseUnfit && o.WhenUnfit != SkipHost:
		return &FieldError{Field: "when_unfit", Message: fmt.Sprintf("must be %q or nothing", SkipHost)}
	case o.WhenHeld != WaitForHeld && o.WhenHeld != SkipHost:
		return &FieldError{Field: "when_held", Message: fmt.Sprintf("must be %q or nothing", SkipHost)}
	case len(o.Confirmed) > maxDigest:
		return tooLong("confirmed", len(o.Confirmed), maxDigest)
	}
	if o.Drift != "" {
		if err := checkShown("drift", o.Drift, MaxDriftName); err != nil {
			return err
		}
	}
	return checkRetried(o.Retry)
}

// maxDigest is how long the digest of a preview is at most.
const maxDigest = 64

// checkWaves refuses waves that are none, or of which one is not more than one before of its kind.
func (o *BatchOptions) checkWaves() error {
	if len(o.Rolling) > MaxWaves {
		return &FieldError{Field: "rolling", Message: fmt.Sprintf("at most %d waves", MaxWaves)}
	}
	last := map[bool]int{}
	for _, wave := range o.Rolling {
		const hundred = 100 // of which a percentage is as many
		n, err := ShareOf(wave, hundred)
		if err != nil {
			return inField("rolling", err)
		}
		percent := strings.HasSuffix(wave, "%")
		if n <= last[percent] {
			return &FieldError{Field: "rolling", Message: "the waves " + strings.Join(o.Rolling, ",") + " do not rise"}
		}
		last[percent] = n
	}
	return nil
}

// checkRetried refuses words that no member of a batch can have ended with.
func checkRetried(which []string) error {
	if len(which) > MaxRetried {
		return &FieldError{Field: "retry", Message: fmt.Sprintf("at most %d", MaxRetried)}
	}
	for _, word := range which {
		state, reason, has := strings.Cut(word, "(")
		if !State(state).Ended() || has && (!strings.HasSuffix(reason, ")") || len(reason) > MaxNeed) {
			return &FieldError{Field: "retry", Message: fmt.Sprintf("%q is not how a job ends: failed, or expired(offline)", word)}
		}
	}
	return nil
}

// Retries reports whether a job that ended so is one of those that [Batch.Retry] was asked for with
// these words.
func (o *BatchOptions) Retries(state State, reason string, started Ran) bool {
	for _, word := range o.Retry {
		of, why, has := strings.Cut(word, "(")
		switch {
		case State(of) != state || has && strings.TrimSuffix(why, ")") != reason:
		case has && reason == ReasonBatch && cmp.Or(started, DidNotRun) != DidNotRun:
		default:
			return true
		}
	}
	return false
}
