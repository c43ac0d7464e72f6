package admin

import "net/http"

// health is the answer to health checks, which need no password.
type health struct {
	Status string `json:"status"` // "ok", as RabbitMQ says, or "failed"
	Reason string `json:"reason,omitempty"`
}

// live says that the process answers.
func live(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, health{Status: "ok"})
}

// ready says whether the node serves clients; else 503 and why not.
func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	if err := s.node.Ready(); err != nil {
		answer(w, http.StatusServiceUnavailable, health{Status: "failed", Reason: err.Error()})
		return
	}
	answer(w, http.StatusOK, health{Status: "ok"})
}
