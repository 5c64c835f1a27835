package rows

import "github.com/harpcaller/harp/store"

// Bytes that a job takes in the store beside its request, records and value, whose are
// counted as they are written: about, and the same whenever it is asked of the same job, so
// that nothing is left of the sum when it is deleted.
const (
	indexCost   = 40  // an entry of an index, beside what it is by
	callCost    = 145 // the row of what never changes
	lifeCost    = 100 // the row of its life,
	attemptCost = 85  // with each attempt,
	noteCost    = 50  // and a cancel, a stop or a late end
)

// footprint is that of a job.
func footprint(j *store.Job) int64 {
	by := j.Principal
	n := callCost + 2*indexCost + 2*(len(j.Host)+len(j.Procedure)) + len(j.Drift) + len(by.Kind) + len(by.Name) + len(by.Auth)
	if j.Queue != nil {
		n += indexCost + 2*len(j.Queue)
	}
	for k, v := range j.Labels {
		n += indexCost + 2*(len(k)+len(v))
	}
	return int64(n) + lifeFootprint(j)
}

// lifeFootprint is what of it follows its life.
func lifeFootprint(j *store.Job) int64 {
	n := lifeCost + attemptCost*len(j.Attempts)
	if j.State.Ended() {
		n += 2*indexCost + len(j.State) // by its state, and by when it ended
	}
	if j.Failure.Code != "" {
		n += noteCost + failureBytes(&j.Failure)
	}
	if j.Cancel != nil {
		n += noteCost
	}
	if j.Stopping != nil {
		n += noteCost
	}
	if o := j.Outcome; o != nil {
		n += noteCost + failureBytes(&o.Failure)
	}
	if l := j.Late; l != nil {
		n += noteCost + failureBytes(&l.Failure)
	}
	return int64(n)
}
