package admin

import (
	"context"
	"net"
	"net/http"
	"slices"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// Local is the node that is asked, which need not serve.
type Local interface {
	Login(ctx context.Context, user, password string, remote net.Addr) (*kernel.User, error)
	// ID is the node's own, as in node.id.
	ID() string
	// Present is what the node itself is short of, with the figures of now.
	Present() *broker.Alarms
}

// isLocalAlarms reports whether a request is for the alarms of the node that is asked.
func isLocalAlarms(r *http.Request) bool {
	path, ok := split(r.URL)
	return ok && (r.Method == http.MethodGet || r.Method == http.MethodHead) && slices.Equal(path, []string{"health", "checks", "local-alarms"})
}

// localAlarms is GET /api/health/checks/local-alarms at a node that does not serve: who
// serves does not know its figures. It fails also when nobody serves.
func (g *Gate) localAlarms(w http.ResponseWriter, r *http.Request) error {
	of := g.cfg.Local()
	if err := letIn(r, of, false); err != nil {
		return err
	}
	if on := alarmsOf(prefix+of.ID(), of.Present()); len(on) > 0 {
		checkResult(w, localAlarms, map[string]any{"alarms": on})
		return nil
	}
	failed := ""
	if err := g.cfg.Ready(); err != nil {
		failed = err.Error()
	}
	checkResult(w, failed, nil)
	return nil
}
