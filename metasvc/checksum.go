package metasvc

import (
	"github.com/cespare/xxhash/v2"
)

// Checksum returns the XXH64 of the state as a checkpoint would hold it, and the index of
// the last command in it: of two nodes with the same index it is equal. Errors: none but
// those of encoding.
func (c *Catalog) Checksum() (index, sum uint64, err error) {
	v := c.view.Load()
	h := xxhash.New()
	if err := v.state.Write(h); err != nil {
		return 0, 0, err
	}
	return v.index, h.Sum64(), nil
}
