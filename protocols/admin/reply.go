package admin

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/trivium-mq/trivium/kernel"
)

// refusal is an error in the shape of RabbitMQ's.
type refusal struct {
	status int
	kind   string
	reason string
}

// Error implements error.
func (r *refusal) Error() string { return r.reason }

var errNotFound = &refusal{http.StatusNotFound, "Object Not Found", "Not Found"}

func badRequest(reason string) error { return &refusal{http.StatusBadRequest, "bad_request", reason} }

func unauthorised(reason string) error {
	return &refusal{http.StatusUnauthorized, "not_authorised", reason}
}

// codes is the one table from the kernel's errors to statuses and kinds.
var codes = map[kernel.Code]refusal{
	kernel.CodeInternal:       {status: http.StatusInternalServerError, kind: "internal_error"},
	kernel.CodeNotFound:       {status: http.StatusNotFound, kind: "not_found"},
	kernel.CodeExists:         {status: http.StatusBadRequest, kind: "bad_request"},
	kernel.CodeAccessRefused:  {status: http.StatusUnauthorized, kind: "not_authorised"},
	kernel.CodeLocked:         {status: http.StatusBadRequest, kind: "bad_request"},
	kernel.CodePrecondition:   {status: http.StatusBadRequest, kind: "bad_request"},
	kernel.CodeInvalidName:    {status: http.StatusBadRequest, kind: "bad_request"},
	kernel.CodeInvalid:        {status: http.StatusBadRequest, kind: "bad_request"},
	kernel.CodeNotAllowed:     {status: http.StatusBadRequest, kind: "bad_request"},
	kernel.CodeNotImplemented: {status: http.StatusBadRequest, kind: "not_implemented"},
	kernel.CodeTooLarge:       {status: http.StatusRequestEntityTooLarge, kind: "bad_request"},
	kernel.CodeCorrupt:        {status: http.StatusInternalServerError, kind: "internal_error"},
	kernel.CodeLimit:          {status: http.StatusBadRequest, kind: "bad_request"},
	kernel.CodeUnavailable:    {status: http.StatusServiceUnavailable, kind: "unavailable"},
	kernel.CodeUnknown:        {status: http.StatusServiceUnavailable, kind: "unknown_outcome"},
	kernel.CodeOutOfRange:     {status: http.StatusBadRequest, kind: "bad_request"},
	kernel.CodeSequenceGap:    {status: http.StatusBadRequest, kind: "bad_request"},
	kernel.CodeFenced:         {status: http.StatusServiceUnavailable, kind: "unavailable"},
	kernel.CodePressure:       {status: http.StatusServiceUnavailable, kind: "unavailable"},
	kernel.CodeDropped:        {status: http.StatusNotFound, kind: "not_found"},
}

// refuse answers with an error. What carries no code of the kernel is a defect
// and its text is for the log only.
func (c *call) refuse(err error) {
	if r, ok := errors.AsType[*refusal](err); ok {
		fail(c.w, r.status, r.kind, r.reason)
		return
	}
	e, ok := errors.AsType[*kernel.Error](err)
	if !ok {
		c.s.cfg.Log.Error().Err(err).Str("method", c.r.Method).Str("path", c.r.URL.Path).Msg("a request failed")
		fail(c.w, http.StatusInternalServerError, "internal_error", "the node's log says more")
		return
	}
	r := codes[e.Code]
	reason := e.Detail
	if reason == "" || e.Name != "" && !strings.Contains(reason, e.Name) {
		reason = e.Error()
	}
	fail(c.w, r.status, r.kind, reason)
}

// fail answers in the shape of RabbitMQ's errors.
func fail(w http.ResponseWriter, status int, kind, reason string) {
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Basic realm="Trivium"`)
	}
	answer(w, status, struct {
		Error  string `json:"error"`
		Reason string `json:"reason"`
	}{kind, reason})
}

// answer sends a body in JSON.
func answer(w http.ResponseWriter, status int, body any) {
	b, err := json.Marshal(body)
	if err != nil { // only if a type here cannot be marshalled: a defect
		status, b = http.StatusInternalServerError, []byte(`{"error":"internal_error","reason":"the answer has no JSON form"}`)
	}
	header(w)
	w.WriteHeader(status)
	_, _ = w.Write(b) // the peer has gone
}

func header(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Content-Type-Options", "nosniff")
}
