package admin

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

// Archive makes backups of the node that is asked, whether it serves or not.
type Archive interface {
	Login(ctx context.Context, user, password string, remote net.Addr) (*kernel.User, error)
	// Backup returns when the backup is complete, or has failed; see package broker.
	Backup(ctx context.Context, order kernel.BackupOrder) (kernel.BackupReport, error)
}

// backupOrder is the body of POST /api/backup.
type backupOrder struct {
	Directory string `json:"directory"`
	Rate      int64  `json:"rate"` // bytes a second; 0 = no limit
}

// backupInfo is the answer.
type backupInfo struct {
	Directory string    `json:"directory"`
	Node      string    `json:"node"`
	Begun     time.Time `json:"begun"`
	Seconds   float64   `json:"seconds"`
	Files     int       `json:"files"`
	Bytes     int64     `json:"bytes"`
	Linked    int64     `json:"linked_bytes"`
	Damaged   []string  `json:"damaged"`
}

// isBackup reports whether a request is for a backup, and so for the node that was asked.
func isBackup(r *http.Request) bool {
	path, ok := split(r.URL)
	return ok && len(path) == 1 && path[0] == "backup"
}

// backup is POST /api/backup, for administrators. It is answered when the backup is
// complete; a client that goes before ends it.
func backup(archive Archive, w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodPost {
		return &refusal{http.StatusMethodNotAllowed, "method_not_allowed", r.Method + " does not work here"}
	}
	if err := letIn(r, archive, true); err != nil {
		return err
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, smallBody))
	if err != nil {
		return unread(err, smallBody)
	}
	var order backupOrder
	if err := json.Unmarshal(raw, &order); err != nil || order.Directory == "" {
		return badRequest(`the body is {"directory": "...", "rate": ...}`)
	}
	// It takes longer than any other request.
	conn := http.NewResponseController(w)
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	if err := conn.SetWriteDeadline(time.Time{}); err != nil {
		return err
	}
	b, err := archive.Backup(r.Context(), kernel.BackupOrder{Dir: order.Directory, Rate: order.Rate})
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, backupInfo{Directory: b.Dir, Node: b.Node, Begun: b.Begun, Seconds: b.Took.Seconds(), Files: b.Files,
		Bytes: b.Bytes, Linked: b.Linked, Damaged: append([]string{}, b.Damaged...)})
	return nil
}
