// Measures node-postgres as tests/drivers/run.sh explains; the connection comes from PGHOST and its kin.
const { Client } = require('pg');
const version = require('pg/package.json').version;

async function attempt(client, query, inside) {
  let result = 'ok';
  if (inside) await client.query('BEGIN');
  try {
    await client.query({ ...query, values: [1] });
  } catch (error) {
    result = error.code || 'lost';
  }
  if (inside) await client.query('ROLLBACK');
  return result;
}

async function measure(mode, event, inside) {
  const [other, client] = [new Client(), new Client()];
  await other.connect();
  await client.connect();
  await other.query(process.env.RESET_SQL);
  const text = process.env[`${event}_QUERY`];
  const query = mode === 'named' ? { name: 'q', text } : { text };
  for (let i = 0; i < 10; ++i) {
    if ((await attempt(client, query, false)) !== 'ok') throw new Error('before the event');
  }
  await other.query(process.env[`${event}_SQL`]);
  const results = [];
  for (let i = 0; i < 3; ++i) results.push(await attempt(client, query, inside));
  console.log(`node-postgres ${version}|${mode}|${event}|${inside ? 'inside' : 'outside'}|${results.join(' ')}`);
  await client.end();
  await other.end();
}

(async () => {
  for (const mode of ['default (no name)', 'named'])
    for (const event of ['ADD', 'SWITCH']) for (const inside of [false, true]) await measure(mode, event, inside);
})();
