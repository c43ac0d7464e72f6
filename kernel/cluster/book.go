package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/trivium-mq/trivium/storage/vfs"
)

const (
	bookName = "peers.json"
	maxBook  = 1 << 20
)

// peer is another member, as it is remembered over a restart.
type peer struct {
	Node        string `json:"node"`
	Raft        string `json:"raft"`
	Incarnation string `json:"incarnation,omitempty"`
	Address     string `json:"address"`
}

// book is the file with the addresses of the others: a node that starts has no catalog
// yet. What it says is a hint; the catalog decides who is a member.
type book struct {
	fs  vfs.FS
	dir string

	mu      sync.Mutex
	cluster string
	peers   []peer // by node
}

// bookFile is the form of the file.
type bookFile struct {
	Cluster string `json:"cluster"`
	Peers   []peer `json:"peers"`
}

// openBook reads the file. That of another cluster counts for nothing; so does one
// that cannot be read: the seeds and the groups' own configuration are there, too.
func openBook(fsys vfs.FS, dir, cluster string) (*book, error) {
	b := &book{fs: fsys, dir: dir, cluster: cluster}
	if fsys == nil {
		return b, nil
	}
	file, err := readBook(fsys, dir)
	if err != nil {
		return nil, fmt.Errorf("cluster: %s: %w", bookName, err)
	}
	if file.Cluster == cluster {
		b.peers = file.Peers
	}
	return b, nil
}

// readBook reads the file. Without one, or if it means nothing, it is empty.
func readBook(fsys vfs.FS, dir string) (file bookFile, err error) {
	err = readFile(fsys, dir, bookName, &file)
	return file, err
}

// Others returns the names of the other nodes of the cluster that a data directory
// belongs to, as far as it knows: of a node that does not run.
func Others(fsys vfs.FS, dir string) (names []string) {
	file, err := readBook(fsys, dir)
	if err != nil {
		return nil
	}
	for _, p := range file.Peers {
		names = append(names, p.Node)
	}
	return names
}

func (b *book) list() []peer {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.peers)
}

func (b *book) address(raftID string) (string, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.peers {
		if p.Raft == raftID && p.Address != "" {
			return p.Address, true
		}
	}
	return "", false
}

// set writes who the others are, if that is news.
func (b *book) set(cluster string, peers []peer) error {
	slices.SortFunc(peers, func(x, y peer) int { return strings.Compare(x.Node, y.Node) })
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cluster == cluster && slices.Equal(b.peers, peers) {
		return nil
	}
	b.cluster, b.peers = cluster, peers
	if b.fs == nil {
		return nil
	}
	if err := b.write(); err != nil {
		return fmt.Errorf("cluster: write %s: %w", bookName, err)
	}
	return nil
}

func (b *book) write() error { return writeFile(b.fs, b.dir, bookName, bookFile{b.cluster, b.peers}) }

// writeFile replaces a file as a whole by the JSON of v.
func writeFile(fsys vfs.FS, dir, base string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return vfs.ReplaceFile(fsys, path.Join(dir, base), append(data, '\n'))
}

// readFile decodes a file. Without one, or if it holds no JSON, v stays as it is.
func readFile(fsys vfs.FS, dir, base string, v any) error {
	f, err := fsys.Open(path.Join(dir, base))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	data, err := io.ReadAll(io.NewSectionReader(f, 0, maxBook))
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if json.Valid(data) {
		_ = json.Unmarshal(data, v) // fields of another type are left out
	}
	return nil
}
