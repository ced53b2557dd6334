-- A file of schema 3 with two rows, as release 0.1 wrote it. Never changed: it stands for the files that users have.
PRAGMA application_id = 1397249875;
PRAGMA user_version = 3;
CREATE TABLE evidence (
    id BLOB PRIMARY KEY NOT NULL CHECK (length(id) = 16),
    device TEXT NOT NULL,
    operation TEXT NOT NULL,
    workload BLOB NOT NULL CHECK (length(workload) = 16),
    description TEXT NOT NULL,
    kernel TEXT NOT NULL,
    source INTEGER NOT NULL,
    parameters TEXT NOT NULL,
    seconds REAL NOT NULL,
    samples INTEGER NOT NULL,
    spread REAL,
    busy INTEGER NOT NULL CHECK (busy IN (0, 1)),
    baseline REAL,
    features BLOB NOT NULL,
    features_version INTEGER NOT NULL,
    measured_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX evidence_by_workload ON evidence (device, workload);
CREATE INDEX evidence_by_age ON evidence (measured_at);
CREATE TABLE pinned (
    device TEXT NOT NULL,
    workload BLOB NOT NULL CHECK (length(workload) = 16),
    kernel TEXT NOT NULL,
    source INTEGER NOT NULL,
    parameters TEXT NOT NULL,
    PRIMARY KEY (device, workload)
) STRICT, WITHOUT ROWID;
CREATE TABLE refused (
    device TEXT NOT NULL,
    workload BLOB NOT NULL CHECK (length(workload) = 16),
    kernel TEXT NOT NULL,
    source INTEGER NOT NULL,
    parameters TEXT NOT NULL,
    reason TEXT NOT NULL,
    refused_at INTEGER NOT NULL,
    PRIMARY KEY (device, workload, kernel, parameters)
) STRICT, WITHOUT ROWID;
INSERT INTO evidence VALUES (x'00000000000000000000000000000001', 'cpu-0123456789abcdef', 'matmul', x'00000000000000000000000000000007',
    'matmul(f32 2×3, f32 3×4) → f32 2×4', 'cpu::matmul::avx2_small', -1, 'threads=1', 1.5e-6, 3, 0.02, 0, 1e-6,
    x'0000803f000020c0', 1, 1700000000000);
INSERT INTO evidence VALUES (x'00000000000000000000000000000002', 'cpu-0123456789abcdef', 'matmul', x'00000000000000000000000000000007',
    'matmul(f32 2×3, f32 3×4) → f32 2×4', 'cpu::matmul::avx2_small', -1, 'threads=1', 1.5e-6, 3, 0.02, 0, 1e-6,
    x'0000803f000020c0', 1, 1700000000000);
INSERT INTO pinned VALUES ('cpu-0123456789abcdef', x'00000000000000000000000000000007', 'cpu::matmul::avx2_small', -1, 'threads=1');
INSERT INTO refused VALUES ('cpu-0123456789abcdef', x'00000000000000000000000000000007', 'cpu::matmul::avx2_small', -1, 'threads=2',
    'wrong answer', 1700000000000);
