package harp

import "context"

// SubmitFunc does what [JobService.Submit] does.
type SubmitFunc func(ctx context.Context, calls []Submission) ([]Submitted, error)

// ResultFunc does what [JobService.JobResult] does, for one id, and what
// [JobService.JobResults] does for several.
type ResultFunc func(ctx context.Context, ids []string, wait bool) ([]JobResult, error)

// RecordsFunc does what [JobService.Records] does.
type RecordsFunc func(ctx context.Context, id string, q RecordQuery) (RecordPage, error)

// BatchLogFunc does what [BatchService.BatchLog] does.
type BatchLogFunc func(ctx context.Context, id string, q BatchQuery) (BatchPage, error)

// An Interceptor stands between a Caller and what answers it: it may look at what is asked and
// answered, change either, refuse, or ask again. client.Config.Use has those of one Caller,
// dispatcher.Config.Use those of all that a dispatcher answers, in its process and over the
// network. A field that is nil leaves that part as it is.
//
// What is submitted is encoded: [DecodeRequest] reads its Request, and r.Encode() takes the place of that,
// without the Signature and KeyID, which were of the other bytes. The Hosts that a List of the request
// stands for stay beside it. At a dispatcher the job keeps the bytes that the interceptor hands on.
//
// Results and Records see what is asked about jobs by their ids, those of members of batches too. BatchLog sees
// what [Batch.Results] and [Batch.Follow] ask, whose answers hold the results and records of all
// members: an interceptor that keeps results from somebody needs all three. None of them sees what is asked
// about states, such as [Job.Status], whose arguments, failure and late result are left to a Service that embeds
// this one.
type Interceptor struct {
	Submit   func(next SubmitFunc) SubmitFunc
	Results  func(next ResultFunc) ResultFunc
	Records  func(next RecordsFunc) RecordsFunc
	BatchLog func(next BatchLogFunc) BatchLogFunc
}

// Intercept returns a Service that is s behind interceptors: the first is asked first.
func Intercept(s Service, interceptors ...Interceptor) Service {
	for i := len(interceptors) - 1; i >= 0; i-- {
		s = intercept(s, interceptors[i])
	}
	return s
}

// intercepted is a Service behind one interceptor.
type intercepted struct {
	Service
	submit   SubmitFunc
	results  ResultFunc
	records  RecordsFunc
	batchLog BatchLogFunc
}

func intercept(s Service, by Interceptor) Service {
	i := &intercepted{Service: s, submit: s.Submit, results: resultsOf(s), records: s.Records, batchLog: s.BatchLog}
	if by.Submit != nil {
		i.submit = by.Submit(i.submit)
	}
	if by.Results != nil {
		i.results = by.Results(i.results)
	}
	if by.Records != nil {
		i.records = by.Records(i.records)
	}
	if by.BatchLog != nil {
		i.batchLog = by.BatchLog(i.batchLog)
	}
	return i
}

// resultsOf is the ResultFunc of a Service.
func resultsOf(s Service) ResultFunc {
	return func(ctx context.Context, ids []string, wait bool) ([]JobResult, error) {
		if len(ids) != 1 {
			return s.JobResults(ctx, ids)
		}
		res, err := s.JobResult(ctx, ids[0], wait)
		if err != nil {
			return nil, err
		}
		return []JobResult{{ID: ids[0], Result: res}}, nil
	}
}

// Submit implements JobService.
func (i *intercepted) Submit(ctx context.Context, calls []Submission) ([]Submitted, error) {
	return i.submit(ctx, calls)
}

// JobResult implements JobService.
func (i *intercepted) JobResult(ctx context.Context, id string, wait bool) (Result, error) {
	got, err := i.results(ctx, []string{id}, wait)
	if err != nil || len(got) == 0 {
		return Result{}, err
	}
	return got[0].Result, got[0].Err
}

// JobResults implements JobService.
func (i *intercepted) JobResults(ctx context.Context, ids []string) ([]JobResult, error) {
	return i.results(ctx, ids, true)
}

// Records implements JobService.
func (i *intercepted) Records(ctx context.Context, id string, q RecordQuery) (RecordPage, error) {
	return i.records(ctx, id, q)
}

// BatchLog implements BatchService.
func (i *intercepted) BatchLog(ctx context.Context, id string, q BatchQuery) (BatchPage, error) {
	return i.batchLog(ctx, id, q)
}
